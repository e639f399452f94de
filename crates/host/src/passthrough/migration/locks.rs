//! Carries POSIX locks to another host, with `--migration-locks=carry`.
//!
//! The source describes its locks ([`Passthrough::add_locks`]) and lets go of them once the destination has the whole
//! state but its end. The destination takes them when it loads the state ([`Passthrough::take_locks`]), before it
//! answers the front end. In between nobody holds them. A lock that somebody else has taken by then, and a locked file
//! that somebody has changed, is an error at the destination: the guest goes on at the source, which takes the locks
//! back before it serves another request ([`Locks::take_back`](crate::locks::Locks::take_back)).

use std::{collections::HashMap, os::fd::OwnedFd};

use rustix::fs::{AtFlags, StatxFlags};
use transom_wire::{Handle, NodeId};

use crate::{
    Errno,
    locks::open_for_locks,
    migration::{Error, LockHolder, LockedFile, State},
    passthrough::{
        Passthrough,
        handles::{FileRef, Open},
    },
    sysfd::stat,
};

impl Passthrough {
    /// Adds the holders of POSIX locks, and what their files are like.
    pub(super) fn add_locks(&self, state: &mut State<'_>) -> Result<(), Error> {
        for (nodeid, holder, _) in self.described_locks() {
            if !state.locked_files.iter().any(|file| file.inode == holder.inode) {
                state.locked_files.push(self.locked_file(nodeid, holder.inode)?);
            }
            state.locks.push(holder);
        }
        Ok(())
    }

    /// Returns the holders of POSIX locks with their descriptors, in the guest's numbers of inodes and open files.
    pub(super) fn described_locks(&self) -> Vec<(NodeId, LockHolder, std::sync::Arc<OwnedFd>)> {
        let Some(locks) = &self.locks else { return Vec::new() };
        let files = self.handles.all().into_iter().filter_map(|(fh, open)| match open {
            Open::File(file) => Some((file.locking.id(), fh.0)),
            Open::Directory(_) => None,
        });
        let files: HashMap<u64, u64> = files.collect();
        let mut described = locks.holders();
        for (nodeid, holder, _) in &mut described {
            holder.inode = self.aliases.guests(*nodeid).0;
            holder.files = holder.files.iter().filter_map(|id| files.get(id).copied()).collect();
        }
        described
    }

    fn locked_file(&self, nodeid: NodeId, id: u64) -> Result<LockedFile, Error> {
        let found = self
            .inodes
            .get(nodeid)
            .and_then(|inode| stat::statx(&inode.fd, AtFlags::STATX_FORCE_SYNC, StatxFlags::SIZE | StatxFlags::MTIME));
        let found = found.map_err(|cause| Error::Lost { inode: id, cause })?;
        let changed_at = (found.stx_mtime.tv_sec.cast_unsigned(), found.stx_mtime.tv_nsec);
        Ok(LockedFile { inode: id, len_bytes: found.stx_size, changed_at })
    }

    /// Takes the locks in `state`, whose inodes and open files are known. `own` finds our number of an inode.
    pub(super) fn take_locks(&self, state: &State<'_>, own: impl Fn(u64) -> Option<NodeId>) -> Result<(), Error> {
        // An owner without an open file has nothing locked.
        for holder in state.locks.iter().filter(|holder| !(holder.files.is_empty() && holder.ranges.is_empty())) {
            let nodeid = own(holder.inode).ok_or(Error::Lost { inode: holder.inode, cause: Errno::STALE })?;
            self.take_locks_of(nodeid, holder)?;
        }
        // Only now: until the locks are here, somebody may change the files.
        for file in &state.locked_files {
            let nodeid = own(file.inode).ok_or(Error::Lost { inode: file.inode, cause: Errno::STALE })?;
            if self.locked_file(nodeid, file.inode)? != *file {
                return Err(Error::ChangedWhileUnlocked { inode: file.inode });
            }
        }
        Ok(())
    }

    fn take_locks_of(&self, nodeid: NodeId, holder: &LockHolder) -> Result<(), Error> {
        let Some(locks) = &self.locks else {
            return Err(Error::Refused(
                "the guest holds locks of the host, which this daemon's options do not allow: \
                 start it with --posix-lock",
            ));
        };
        let (first, last) = (holder.ranges.first(), holder.ranges.last());
        let failed = |cause| Error::Lock {
            inode: holder.inode,
            start: first.map_or(0, |range| range.start),
            end: last.map_or(0, |range| range.end),
            cause,
        };
        let files: Vec<FileRef> = holder.files.iter().filter_map(|&fh| self.handles.file(Handle(fh)).ok()).collect();
        // One of them has the access that the locks need.
        let mut outcome = Err(Errno::BADF);
        for file in &files {
            let fd = self.inodes.with_room(|| open_for_locks(&self.proc_fds, &file.fd)).map_err(failed)?;
            outcome = locks.take(nodeid, holder, fd, files.iter().map(|file| &file.locking));
            if outcome != Err(Errno::BADF) {
                break;
            }
        }
        outcome.map_err(failed)
    }
}
