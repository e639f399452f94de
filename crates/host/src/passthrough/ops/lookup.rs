//! LOOKUP.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Statx};
use transom_wire::{
    NodeId,
    attr::{Attr, AttrFlags, EntryOut},
    operation::Lookup,
};

use crate::{
    Errno,
    passthrough::{
        Passthrough,
        attr::seconds,
        gate::Stopwatch,
        inodes::{FsId, Inode, InodeFd, file_type},
        validity::attribute_validity,
    },
    server::{BlockingMode, Call, Serve},
    sysfd::{path, stat},
};

/// Refers to an inode of any type without opening it.
const REFER: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

impl Serve<Lookup> for Passthrough {
    fn serve(&self, call: Call<'_, Lookup>) -> Result<EntryOut, Errno> {
        let (parent, name) = (call.nodeid, call.name);
        let dir = self.inodes.get(parent)?;
        match self.entry_of(parent, &dir, name.as_bytes(), call.ctx.blocking, &mut Stopwatch::default()) {
            Err(Errno::NOENT) if !self.config.negative_timeout.is_zero() => Ok(self.absent()),
            outcome => outcome,
        }
    }
}

impl Passthrough {
    /// Looks up `name` in `dir`, whose nodeid is `parent`, and counts the lookup. `watch` measures how long the host
    /// takes. Errors: ENOENT also if it is hidden.
    pub(in crate::passthrough) fn entry_of(
        &self,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        blocking: BlockingMode,
        watch: &mut Stopwatch,
    ) -> Result<EntryOut, Errno> {
        self.check_visible(dir, name)?;
        if let Some(outcome) = self.known_entry(parent, dir, name, blocking, watch) {
            return outcome;
        }
        watch.pause();
        let fd = self.refer(dir, name, blocking).inspect_err(|&errno| {
            if errno == Errno::NOENT {
                self.inodes.note_absent();
            }
        })?;
        self.admit(parent, dir, name, InodeFd::Owned(fd))
    }

    /// As [`Self::entry_of`], without opening anything. Returns `None` if the inode is not known for certain, or that
    /// is not likely, or it may take long.
    fn known_entry(
        &self,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        blocking: BlockingMode,
        watch: &mut Stopwatch,
    ) -> Option<Result<EntryOut, Errno>> {
        // These are refused, or lead out of the share.
        if matches!(name, b"." | b"..") {
            return None;
        }
        let before = self.inodes.expect_known()?;
        let stat = || stat::statx_at(&dir.fd, name, stat::IDENTITY);
        let stat = match blocking {
            BlockingMode::MayBlock => stat(),
            BlockingMode::MustNotBlock => self.lookup_gate.pass_next(watch, stat)?,
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(Errno::NOENT) => {
                self.inodes.note_absent();
                return Some(Err(Errno::NOENT));
            }
            Err(_) => return None,
        };
        if let Err(errno) = self.check_found(dir, name, &stat) {
            return Some(Err(errno));
        }
        let found = self.inodes.count_known(parent, dir, name, &stat, before)?;
        let attr = match (&found.fd, &self.dax) {
            (Some(fd), _) => self.attr(fd, &stat),
            (None, None) => self.attr_without_dax(&stat),
            (None, Some(_)) => {
                let inode = self.inodes.get(found.nodeid).inspect_err(|_| _ = self.inodes.forget(found.nodeid, 1));
                self.attr(&inode.ok()?.fd, &stat)
            }
        };
        self.note_found(parent, name, found.nodeid);
        Some(Ok(self.entry(dir, found.nodeid, found.fs, &stat, attr, self.validity(&stat))))
    }

    /// Counts a lookup of the inode that was found as `name` in `dir`.
    pub(in crate::passthrough) fn admit(
        &self,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        inode_fd: InodeFd<'_>,
    ) -> Result<EntryOut, Errno> {
        let entry = self.admit_unseen(parent, dir, name, inode_fd)?;
        self.note_found(parent, name, entry.nodeid.into());
        Ok(entry)
    }

    /// Remembers what the guest found under a name, for changes that take the name away.
    fn note_found(&self, parent: NodeId, name: &[u8], nodeid: NodeId) {
        if let Some(replays) = &self.replays {
            replays.names.insert(parent, name, nodeid);
        }
    }

    /// Does the same for an entry that may not reach the guest's cache.
    pub(in crate::passthrough) fn admit_unseen(
        &self,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        inode_fd: InodeFd<'_>,
    ) -> Result<EntryOut, Errno> {
        let seen = self.changes_seen();
        let stat = stat::statx(inode_fd.as_fd(), AtFlags::empty(), stat::IDENTITY)?;
        self.check_found(dir, name, &stat)?;
        if self.inodes.observes_directories() && file_type(&stat) == FileType::Directory {
            return self.admit_directory(parent, dir, name, &stat, inode_fd);
        }
        let attr = self.attr(inode_fd.as_fd(), &stat);
        let (nodeid, fs) = self.inodes.admit(parent, name, &stat, inode_fd)?;
        Ok(self.entry(dir, nodeid, fs, &stat, attr, self.validity_since(seen, &stat)))
    }

    /// Counts a lookup of a directory, and has it observed before its attributes are read.
    fn admit_directory(
        &self,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        identity: &Statx,
        inode_fd: InodeFd<'_>,
    ) -> Result<EntryOut, Errno> {
        let (nodeid, fs) = self.inodes.admit(parent, name, identity, inode_fd)?;
        let found = self.inodes.get(nodeid).and_then(|inode| {
            self.inodes.observe(&inode);
            let seen = self.changes_seen();
            let stat = stat::statx(&*inode.fd, AtFlags::empty(), stat::IDENTITY)?;
            Ok((stat, self.attr(&*inode.fd, &stat), self.validity_since(seen, &stat)))
        });
        let (stat, attr, validity) = found.inspect_err(|_| _ = self.inodes.forget(nodeid, 1))?;
        Ok(self.entry(dir, nodeid, fs, &stat, attr, validity))
    }

    /// Returns the reply for the inode `nodeid` on `fs` that was found in `dir`.
    fn entry(
        &self,
        dir: &Inode,
        nodeid: NodeId,
        fs: FsId,
        stat: &Statx,
        mut attr: Attr,
        validity: Duration,
    ) -> EntryOut {
        if fs != dir.fs && self.config.announce_submounts && file_type(stat) == FileType::Directory {
            attr.flags = AttrFlags::SUBMOUNT.bits().into();
        }
        let (valid, valid_nsec) = seconds(validity);
        let (attr_valid, attr_valid_nsec) = seconds(attribute_validity(stat, validity));
        EntryOut {
            nodeid: nodeid.into(),
            generation: 0.into(),
            entry_valid: valid.into(),
            attr_valid: attr_valid.into(),
            entry_valid_nsec: valid_nsec.into(),
            attr_valid_nsec: attr_valid_nsec.into(),
            attr,
        }
    }

    /// Opens the inode of `name` in `dir` with `O_PATH`. Errors: EAGAIN if that may take long, under `MustNotBlock`.
    pub(in crate::passthrough) fn refer(
        &self,
        dir: &Inode,
        name: &[u8],
        blocking: BlockingMode,
    ) -> Result<OwnedFd, Errno> {
        let open = || self.inodes.with_room(|| path::open_beneath(&dir.fd, name, REFER, Mode::empty()));
        if blocking == BlockingMode::MayBlock {
            return open();
        }
        match self.inodes.with_room(|| path::open_cached(&dir.fd, name, REFER)) {
            // EAGAIN: the host has to look the name up. EINVAL: its kernel is too old for the flag.
            Err(Errno::AGAIN | Errno::INVAL) => self.lookup_gate.pass(open).unwrap_or(Err(Errno::AGAIN)),
            outcome => outcome,
        }
    }

    /// Returns the entry for an absent name, with the time for which the guest may cache it.
    fn absent(&self) -> EntryOut {
        let (entry_valid, entry_valid_nsec) = seconds(self.config.negative_timeout);
        EntryOut { entry_valid: entry_valid.into(), entry_valid_nsec: entry_valid_nsec.into(), ..EntryOut::default() }
    }
}
