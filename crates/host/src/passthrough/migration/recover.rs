//! Goes on with the session of a process that has died, in the same sandbox and with the descriptors that it has left.
//!
//! An inode is found by its handle, if those can be opened, else by the name under which the guest found it last, else
//! through a file that the guest has open. An inode that is not found is forgotten: the guest gets ESTALE.

use std::{collections::HashMap, os::fd::OwnedFd, sync::atomic::Ordering::Relaxed};

use rustix::fs::{AtFlags, Mode, OFlags};
use transom_wire::{Handle, NodeId, ops::init::InitFlags};

use super::load::{errno, generation_from};
use crate::{
    Errno,
    journal::{Known, Opened, Session},
    migration::{Error, LockHolder, LockedRange},
    passthrough::{Passthrough, inodes::InodeFd},
    sysfd::{FileHandle, LeftDescriptors, MountId, ofd::LockKind, path, stat},
};

/// Refers to an inode of any type without opening it.
const REFER: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

impl Passthrough {
    /// Goes on with the session in the journal; returns its flags, or `None` without one.
    pub(in crate::passthrough) fn recovered(&self, left: &mut LeftDescriptors) -> Result<Option<InitFlags>, Error> {
        let Some(journal) = &self.journal else { return Err(Error::Refused("there is no journal")) };
        let session = journal.recover();
        self.inodes.begin_at(generation_from(session.nodeid_max.saturating_add(1))?);
        self.handles.begin_at(generation_from(session.fh_max.saturating_add(1))?);
        let flags = session.flags.map(InitFlags::from_bits_retain);
        if let Some(flags) = flags {
            self.session.store(flags.bits(), Relaxed);
            let mut recovery = Recovery::new(self, session, left);
            let lost = recovery.add_inodes();
            let closed = recovery.add_open_files();
            recovery.add_locks();
            let (inodes, open) = (recovery.session.inodes.len(), recovery.session.open.len());
            tracing::info!(inodes, lost, open, closed, "goes on with the session of the process that died");
        }
        journal.restart();
        Ok(flags)
    }
}

struct Recovery<'a> {
    fs: &'a Passthrough,
    session: Session,
    left: &'a mut LeftDescriptors,
    /// Our numbers, by the guest's; `None` for inodes that are lost.
    own: HashMap<u64, Option<NodeId>>,
    /// A descriptor through which handles are opened, and its mount.
    on_mount: Option<(OwnedFd, MountId)>,
    /// The open files of each inode, by handle.
    open: HashMap<u64, (u64, OwnedFd, bool)>,
}

impl<'a> Recovery<'a> {
    fn new(fs: &'a Passthrough, session: Session, left: &'a mut LeftDescriptors) -> Self {
        let take = |(&fh, opened): (&u64, &Opened)| {
            let fd = left.take(i32::try_from(opened.fd).ok()?)?;
            Some((fh, (opened.nodeid, fd, opened.is_directory)))
        };
        let open = session.open.iter().filter_map(take).collect();
        let root = &fs.inodes.root().fd;
        let mount = stat::statx(root, AtFlags::empty(), stat::IDENTITY).ok().and_then(|stat| stat::mount_id(&stat));
        let on_mount = fs.open_mount(".").ok().zip(mount);
        Self { fs, session, left, own: HashMap::new(), on_mount, open }
    }

    /// Returns how many are lost.
    fn add_inodes(&mut self) -> usize {
        let all: Vec<_> = self.session.inodes.keys().copied().collect();
        let mut stack = Vec::new();
        for first in all {
            stack.push(first);
            while let Some(&id) = stack.last() {
                let parent = self.session.inodes.get(&id).map(|known| known.parent);
                let is_new = |parent: &u64| self.session.inodes.contains_key(parent) && !self.own.contains_key(parent);
                match parent.filter(is_new) {
                    _ if self.own.contains_key(&id) => _ = stack.pop(),
                    // A directory below itself, as a guest without sense may have it, is found without its parent.
                    Some(parent) if !stack.contains(&parent) => stack.push(parent),
                    _ => {
                        let own = self.add_inode(id);
                        self.own.insert(id, own);
                        stack.pop();
                    }
                }
            }
        }
        self.own.values().filter(|own| own.is_none()).count()
    }

    /// Makes an inode known, with all its lookups.
    fn add_inode(&self, id: u64) -> Option<NodeId> {
        let (fs, known) = (self.fs, self.session.inodes.get(&id)?);
        let parent = self.own(known.parent);
        let found = self.by_handle(known).or_else(|| self.by_name(known, parent?));
        let own = match found {
            Some(fd) => self.admit(parent.unwrap_or(NodeId::ROOT), &known.name, fd),
            None => self.admit(NodeId::ROOT, b"", self.by_open_file(id)?),
        };
        let own = own.inspect_err(|error| tracing::warn!(id, %error, "an inode is lost")).ok()?;
        fs.inodes.add_lookups(own, known.lookups - 1);
        if own.0 != id {
            fs.aliases.insert(NodeId(id), own);
        }
        Some(own)
    }

    fn own(&self, id: u64) -> Option<NodeId> {
        if id == NodeId::ROOT.0 { Some(NodeId::ROOT) } else { self.own.get(&id).copied().flatten() }
    }

    fn by_handle(&self, known: &Known) -> Option<OwnedFd> {
        let (on_mount, mount) = self.on_mount.as_ref()?;
        let handle = known.handle.as_ref().filter(|handle| handle.mount() == *mount)?;
        self.fs.inodes.with_room(|| handle.open(on_mount, REFER)).ok()
    }

    fn by_name(&self, known: &Known, parent: NodeId) -> Option<OwnedFd> {
        if known.name.is_empty() {
            return None;
        }
        let dir = self.fs.inodes.get(parent).ok()?;
        let fd = self.fs.inodes.with_room(|| path::open_beneath(&dir.fd, &known.name, REFER, Mode::empty())).ok()?;
        let is_it =
            known.handle.as_ref().is_none_or(|handle| FileHandle::of(&fd, handle.mount()).as_ref() == Ok(handle));
        is_it.then_some(fd)
    }

    fn by_open_file(&self, id: u64) -> Option<OwnedFd> {
        let (_, fd, _) = self.open.values().find(|(nodeid, ..)| *nodeid == id)?;
        self.fs.proc_fds.reopen(fd, OFlags::PATH).ok()
    }

    /// Counts one lookup of the inode behind `fd`. Keeps `fd` if nothing else leads to the inode.
    fn admit(&self, parent: NodeId, name: &[u8], fd: OwnedFd) -> Result<NodeId, Errno> {
        let inodes = &self.fs.inodes;
        let stat = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY)?;
        let is_last = stat.stx_nlink == 0 || name.is_empty();
        let spare = is_last.then(|| fd.try_clone().map_err(errno)).transpose()?;
        let own = inodes.admit(parent, name, &stat, InodeFd::Owned(fd))?.0;
        if let Some(spare) = spare.filter(|_| own != NodeId::ROOT) {
            inodes.pin_adopted(own, spare).inspect_err(|_| _ = inodes.forget(own, 1))?;
        }
        Ok(own)
    }

    /// Returns how many could not be kept open.
    fn add_open_files(&mut self) -> usize {
        let mut closed = self.session.open.len() - self.open.len();
        for (fh, (id, fd, is_directory)) in std::mem::take(&mut self.open) {
            if let Err(error) = self.add_open_file(Handle(fh), id, fd, is_directory) {
                tracing::warn!(fh, %error, "an open file is lost");
                closed += 1;
            }
        }
        closed
    }

    fn add_open_file(&self, fh: Handle, id: u64, fd: OwnedFd, is_directory: bool) -> Result<(), Errno> {
        let nodeid = self.own(id).ok_or(Errno::STALE)?;
        let slot = self.fs.handles.reserve()?;
        if is_directory {
            self.fs.handles.adopt_directory(slot, fh, self.fs.directory_of(nodeid, fd)?.used_before());
        } else {
            self.fs.handles.adopt_file(slot, fh, nodeid, fd);
        }
        Ok(())
    }

    fn add_locks(&mut self) {
        let Some(locks) = &self.fs.locks else { return };
        for (&(inode, owner), described) in &self.session.owners {
            let range = |(range, kind): (crate::sysfd::ofd::FileRange, LockKind)| LockedRange {
                start: range.start(),
                end: range.end(),
                is_exclusive: kind == LockKind::Exclusive,
            };
            let holder = LockHolder {
                inode,
                owner,
                pid: u32::try_from(described.pid).unwrap_or(0),
                has_several_pids: described.has_several_pids,
                has_locked: true,
                files: Vec::new(),
                ranges: described.ranges.iter().map(range).collect(),
            };
            let files: Vec<_> =
                described.files.iter().filter_map(|&fh| self.fs.handles.file(Handle(fh)).ok()).collect();
            let fd = i32::try_from(described.fd).ok().and_then(|fd| self.left.take(fd));
            let own = self.own.get(&inode).copied().flatten();
            let adopted = own.zip(fd).ok_or(Errno::STALE);
            let adopted =
                adopted.and_then(|(own, fd)| locks.adopt(own, &holder, fd, files.iter().map(|file| &file.locking)));
            if let Err(error) = adopted {
                tracing::warn!(inode, %error, "locks of an owner are lost");
            }
        }
    }
}
