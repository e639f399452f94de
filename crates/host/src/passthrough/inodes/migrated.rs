//! What a migration needs to know of the known inodes, and does with those that another daemon has made known.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Statx};
use transom_wire::NodeId;

use super::{Identity, InodeFd, Inodes, identity::Hold, lock, reopen::REFER};
use crate::{
    Errno,
    passthrough::FileHandles,
    sysfd::{FileHandle, stat},
};

impl Inodes {
    /// Returns all inodes that the guest knows except the root, with the lookups that it has not forgotten.
    pub(in crate::passthrough) fn all(&self) -> Vec<(NodeId, u64)> {
        let mut all = Vec::with_capacity(self.capacity.known());
        for shard in &self.shards {
            let shard = lock(shard);
            let known = shard.entries.iter().filter(|(_, entry)| entry.lookups > 0);
            all.extend(known.map(|(key, entry)| (NodeId(key), entry.lookups)));
        }
        all
    }

    /// Opens the inode behind `fd`, which is on a mount of another process, on the mount of this process, by its
    /// handle. Returns `None` if handles cannot be opened, or nothing but descriptors leads to the inode.
    pub(in crate::passthrough) fn reopen_on_own_mount(&self, fd: &OwnedFd, stat: &Statx) -> Option<(Statx, OwnedFd)> {
        let fs = self.filesystems.find_by_dev(stat)?;
        if stat.stx_nlink == 0 || !self.filesystems.opens_handles(fs) {
            return None;
        }
        let handle = FileHandle::of(fd, self.filesystems.mount(fs)).ok()?;
        let own = self.with_room(|| self.filesystems.open(fs, &handle, REFER)).ok()?;
        let found = stat::statx(&own, AtFlags::empty(), stat::IDENTITY).ok()?;
        (Identity::new(fs, &found) == Identity::new(fs, stat)).then_some((found, own))
    }

    /// Counts one lookup of the inode behind `fd`, which is on a mount of another process, as of an inode without a
    /// name on the mount of this process.
    pub(in crate::passthrough) fn admit_foreign(&self, stat: &Statx, fd: OwnedFd) -> Result<NodeId, Errno> {
        let fs = self.filesystems.find_by_dev(stat).unwrap_or_else(|| self.filesystems.find_or_add(stat));
        self.admit_on(fs, (NodeId::ROOT, b""), stat, InodeFd::Owned(fd))
    }

    /// Counts `count` more lookups of a known inode.
    pub(in crate::passthrough) fn add_lookups(&self, nodeid: NodeId, count: u64) {
        if let Some(entry) = self.shard(nodeid).entries.get_mut(nodeid.0) {
            entry.lookups = entry.lookups.saturating_add(count);
        }
    }

    /// Returns the names that lead to the inode from the root or from the nearest inode that is kept by handle, which
    /// is returned too. They may be outdated.
    pub(in crate::passthrough) fn last_names(&self, nodeid: NodeId) -> Result<(NodeId, Vec<u8>), Errno> {
        const DEPTH_MAX: usize = 4096;
        let (mut at, mut names) = (nodeid, Vec::new());
        while at != NodeId::ROOT && names.len() < DEPTH_MAX {
            let shard = self.shard(at);
            match &shard.entries.get(at.0).ok_or(Errno::STALE)?.hold {
                Hold::Handle(_) | Hold::Descriptor => break,
                Hold::Path(path) if path.name.is_empty() => return Err(Errno::NOENT),
                Hold::Path(path) => {
                    names.push(path.name.clone());
                    let parent = path.parent;
                    drop(shard);
                    at = parent;
                }
            }
        }
        names.reverse();
        Ok((at, names.join(&b'/')))
    }

    /// Returns the handle by which the inode is kept or recognised, if there is one.
    pub(in crate::passthrough) fn handle(&self, nodeid: NodeId) -> Option<FileHandle> {
        let fd = {
            let shard = self.shard(nodeid);
            let entry = shard.entries.get(nodeid.0)?;
            match (&entry.hold, &entry.fd) {
                (Hold::Descriptor, Some(fd)) => fd.clone(),
                (hold, _) => return hold.handle().cloned(),
            }
        };
        self.take_handle(nodeid, &fd)
    }

    /// Returns the identity of a known inode.
    pub(in crate::passthrough) fn identity(&self, nodeid: NodeId) -> Option<Identity> {
        if nodeid == NodeId::ROOT {
            return Some(self.root_identity);
        }
        self.shard(nodeid).entries.get(nodeid.0).map(|entry| entry.identity)
    }

    /// Returns the identity that `stat` describes, if its mount is known.
    pub(in crate::passthrough) fn identify(&self, stat: &Statx) -> Option<Identity> {
        Some(Identity::new(self.filesystems.find(stat)?, stat))
    }

    /// Returns whether inodes are kept by path rather than by handle wherever possible.
    pub(in crate::passthrough) fn prefers_paths(&self) -> bool {
        self.filesystems.wanted() == FileHandles::Never
    }

    /// Lets all nodeids from now on have at least this generation. No inode may be known.
    pub(in crate::passthrough) fn begin_at(&self, generation: u32) {
        self.shards.iter().for_each(|shard| lock(shard).entries.begin_at(generation));
    }

    /// Returns a generation that no nodeid has had yet, also none of another daemon; `None` if they are used up.
    pub(in crate::passthrough) fn unused_generation(&self) -> Option<u32> {
        let of = |shard| lock(shard).entries.unused_generation();
        self.shards.iter().map(of).try_fold(0, |all, one| Some(all.max(one?)))
    }
}
