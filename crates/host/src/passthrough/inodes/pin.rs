//! Pins inodes that are about to lose a name or to get another one.
//!
//! An inode without names can only be reached through an open descriptor, while a guest that has it open continues to
//! refer to it by nodeid. Its descriptor is therefore pinned before the last name is removed.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::Ordering::Relaxed,
};

use rustix::fs::{AtFlags, FileType, Mode, Statx};
use transom_wire::NodeId;

use super::{
    Inodes, file_type,
    identity::{Hold, Identity, Path},
    lock,
    reopen::REFER,
    shard::Shard,
};
use crate::{
    Errno,
    sysfd::{FileHandle, path, stat},
};

/// Pins an inode until this is dropped, or for as long as the guest knows the inode.
#[derive(Debug)]
#[must_use = "dropping it ends the pin"]
pub(crate) struct Pinned<'a> {
    inodes: &'a Inodes,
    nodeid: NodeId,
    is_kept: bool,
}

impl Pinned<'_> {
    /// Keeps the inode pinned until the guest forgets it.
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.inodes.unpin(self.nodeid);
        }
    }
}

impl Inodes {
    /// Pins the inode whose last name is `name` in `dir`, if the guest knows it. Returns `None` if there is nothing to
    /// pin, or if the limit on pinned inodes is reached; the inode then ends with its name.
    pub(crate) fn pin_last_name(&self, dir: impl AsFd, name: &[u8]) -> Option<Pinned<'_>> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = rustix::fs::statx(&dir, name, flags, stat::IDENTITY).ok()?;
        if stat.stx_nlink > 1 && file_type(&stat) != FileType::Directory {
            return None;
        }
        let identity = Identity::new(self.filesystems.find(&stat)?, &stat);
        {
            let mut shard = lock(self.shard_of(&identity));
            if let Some(key) = shard.find(&identity, None) {
                let entry = shard.entries.get(key)?;
                if entry.is_pinned || !self.descriptors.try_pin() {
                    return None;
                }
                self.spare[entry.class() as usize].fetch_sub(1, Relaxed);
                if matches!(entry.hold, Hold::Descriptor) {
                    self.removals.note(true);
                }
                shard.pin(key);
                return Some(Pinned { inodes: self, nodeid: NodeId(key), is_kept: false });
            }
            let key = shard.find_any(&identity)?;
            if let Some(Hold::Handle(handle)) = shard.entries.get(key).map(|entry| &entry.hold) {
                let handle = handle.clone();
                drop(shard);
                self.removals.note(true);
                // The handle opens the entry's inode, whatever the name refers to by now.
                let fd = self.with_room(|| self.filesystems.open(identity.fs, &handle, REFER)).ok()?;
                return self.pin(key, fd);
            }
        }
        let fd = self.with_room(|| path::open_beneath(&dir, name, REFER, Mode::empty())).ok()?;
        let key = self.recognise(&fd, &identity)?;
        self.pin(key, fd)
    }

    /// Returns whether the guest most likely removes what it creates next, so that a descriptor kept since the creation
    /// is of use.
    pub(in crate::passthrough) fn expects_removal(&self) -> bool {
        self.removals.is_likely() && !self.by_handle.is_used()
    }

    /// Returns the inode that `stat`, with the fields of [`stat::IDENTITY`], describes, if the guest knows it.
    pub(in crate::passthrough) fn nodeid_of(&self, stat: &Statx) -> Option<NodeId> {
        let identity = Identity::new(self.filesystems.find(stat)?, stat);
        let shard = lock(self.shard_of(&identity));
        shard.find(&identity, None).or_else(|| shard.find_any(&identity)).map(NodeId)
    }

    /// Returns the entry of the inode behind `fd`, if the guest knows it as `identity`.
    fn recognise(&self, fd: &OwnedFd, identity: &Identity) -> Option<u64> {
        let stat = stat::statx(fd, AtFlags::empty(), stat::IDENTITY).ok()?;
        if Identity::new(self.filesystems.find(&stat)?, &stat) != *identity {
            return None;
        }
        let handle = stat::mount_id(&stat).and_then(|mount| FileHandle::of(fd, mount).ok());
        let shard = lock(self.shard_of(identity));
        shard.find(identity, Some(handle.as_ref())).or_else(|| shard.find(identity, Some(None)))
    }

    /// Pins an entry's inode with `fd`, an `O_PATH` descriptor on it.
    fn pin(&self, key: u64, fd: OwnedFd) -> Option<Pinned<'_>> {
        let mut shard = self.shard(NodeId(key));
        if !self.descriptors.try_pin() {
            return None;
        }
        let fd = self.open_clock.path_fd(fd);
        match shard.keep(key, &fd, true) {
            Ok(()) => self.descriptors.add(),
            // Opened by another thread meanwhile, or forgotten.
            Err(_) => {
                let Some(entry) = shard.entries.get(key).filter(|entry| !entry.is_pinned) else {
                    self.descriptors.unpin();
                    return None;
                };
                self.spare[entry.class() as usize].fetch_sub(1, Relaxed);
                shard.pin(key);
            }
        }
        drop(shard);
        self.balance();
        Some(Pinned { inodes: self, nodeid: NodeId(key), is_kept: false })
    }

    /// Allows an inode's descriptor to be closed again.
    pub(crate) fn unpin(&self, nodeid: NodeId) {
        self.unpin_in(&mut self.shard(nodeid), nodeid.0);
    }

    /// As [`Inodes::unpin`], for an entry of a locked shard.
    pub(super) fn unpin_in(&self, shard: &mut Shard, key: u64) {
        if shard.unpin(key)
            && let Some(entry) = shard.entries.get(key)
        {
            self.spare[entry.class() as usize].fetch_add(1, Relaxed);
            self.descriptors.unpin();
        }
    }

    /// Pins the inode of a file that was created without a name.
    pub(crate) fn pin_nameless(&self, nodeid: NodeId, fd: OwnedFd) -> Result<(), Errno> {
        if !self.descriptors.try_pin() {
            return Err(Errno::NFILE);
        }
        let fd = self.open_clock.path_fd(fd);
        let outcome = self.shard(nodeid).keep(nodeid.0, &fd, true);
        match outcome {
            Ok(()) => self.descriptors.add(),
            Err(_) => self.descriptors.unpin(),
        }
        self.balance();
        Ok(())
    }

    /// Pins an inode that another daemon has made known, with `fd` unless it has a descriptor. Errors: EMFILE at the
    /// limit on pinned inodes.
    pub(in crate::passthrough) fn pin_adopted(&self, nodeid: NodeId, fd: OwnedFd) -> Result<(), Errno> {
        match self.pin(nodeid.0, fd) {
            Some(pinned) => pinned.keep(),
            None if self.is_pinned(nodeid) => {}
            None => return Err(Errno::MFILE),
        }
        Ok(())
    }

    fn is_pinned(&self, nodeid: NodeId) -> bool {
        self.shard(nodeid).entries.get(nodeid.0).is_some_and(|entry| entry.is_pinned)
    }

    /// Records that the inode which is now `name` in `parent` is found there. Does nothing for inodes that are kept by
    /// handle.
    pub(crate) fn note_name(&self, parent: NodeId, dir: impl AsFd, name: &[u8]) {
        if !self.filesystems.has_paths() {
            return;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let Ok(stat) = rustix::fs::statx(&dir, name, flags, stat::IDENTITY) else { return };
        self.note_path(parent, name, &stat);
    }

    fn note_path(&self, parent: NodeId, name: &[u8], stat: &Statx) {
        let Some(fs) = self.filesystems.find(stat) else { return };
        let identity = Identity::new(fs, stat);
        if self.add_child(parent).is_err() {
            return;
        }
        let mut shard = lock(self.shard_of(&identity));
        // An entry with a kept descriptor is certain to match. Without one, a wrong handle is noticed when it is
        // reopened.
        let key = shard.find(&identity, None).or_else(|| shard.find_any(&identity));
        let entry = key.and_then(|key| shard.entries.get_mut(key));
        let rest = match entry.map(|entry| &mut entry.hold) {
            Some(Hold::Path(path)) => {
                let handle = path.handle.take();
                let now = Path { parent, name: name.into(), handle };
                Hold::Path(Box::new(std::mem::replace(&mut **path, now)))
            }
            _ => Hold::Path(Box::new(Path { parent, name: name.into(), handle: None })),
        };
        drop(shard);
        self.leave_parent(&rest);
    }
}
