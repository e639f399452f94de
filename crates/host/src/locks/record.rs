//! The record of locks: for each inode, the owners that may hold locks, and those locks.

use std::{collections::HashMap, sync::Arc};

use rustix::io::Errno;
use transom_wire::{NodeId, ids::LockOwner};

use super::{LockingFile, Wanted, holder::Holder, open_file::OpenFiles, ranges::Ranges};

/// The recorded locks.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) inodes: HashMap<NodeId, Inode>,
    /// Number of locks on all inodes.
    pub(super) ranges: usize,
}

#[derive(Debug, Default)]
pub(super) struct Inode {
    pub(super) owners: HashMap<LockOwner, Entry>,
    /// Number of locks of all owners.
    pub(super) ranges: usize,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) holder: Arc<Holder>,
    pub(super) open_files: OpenFiles,
    pub(super) locks: Ranges,
    /// It was granted a lock once, so its description is worth keeping.
    pub(super) has_locked: bool,
    /// The process that requested a lock last.
    pub(super) pid: u32,
    pub(super) has_several_pids: bool,
}

impl Record {
    /// Returns the other owners that hold a lock conflicting with `wanted`.
    pub(super) fn in_the_way(&self, wanted: &Wanted) -> impl Iterator<Item = LockOwner> {
        let others = self.inodes.get(&wanted.inode).into_iter().flat_map(|inode| inode.others(wanted.owner));
        others.filter(|(_, entry)| entry.locks.keep_out(wanted.range, wanted.kind)).map(|(owner, _)| owner)
    }

    /// Returns whether the owner of `wanted` is certainly an open file description.
    pub(super) fn is_description(&self, wanted: &Wanted) -> bool {
        self.entry(wanted.inode, wanted.owner).is_some_and(|entry| entry.has_several_pids)
    }

    /// Returns the holder for `wanted`, if there is one, and records its process. Errors: EBADF after RELEASE of
    /// `file`.
    pub(super) fn meet(&mut self, wanted: &Wanted, file: &LockingFile) -> Option<Result<Arc<Holder>, Errno>> {
        let entry = self.inodes.get_mut(&wanted.inode)?.owners.get_mut(&wanted.owner)?;
        // 0 is unknown: a process outside of the mount's namespace.
        entry.has_several_pids |= entry.pid != wanted.pid && entry.pid != 0 && wanted.pid != 0;
        entry.pid = wanted.pid;
        Some(entry.open_files.add(file).map(|()| Arc::clone(&entry.holder)))
    }

    pub(super) fn entry(&self, inode: NodeId, owner: LockOwner) -> Option<&Entry> {
        self.inodes.get(&inode)?.owners.get(&owner)
    }

    /// Returns the entry of `holder`, or `None` if it has ended.
    pub(super) fn entry_of(&self, holder: &Holder) -> Option<&Entry> {
        self.entry(holder.inode, holder.owner).filter(|entry| std::ptr::eq(&*entry.holder, holder))
    }

    /// Changes the locks of `holder`; returns false if it has ended.
    pub(super) fn change(&mut self, holder: &Holder, act: impl FnOnce(&mut Entry)) -> bool {
        let Some(inode) = self.inodes.get_mut(&holder.inode) else { return false };
        let Some(entry) = inode.owners.get_mut(&holder.owner) else { return false };
        if !std::ptr::eq(&*entry.holder, holder) {
            return false;
        }
        let before = entry.locks.len();
        act(entry);
        let after = entry.locks.len();
        inode.ranges = inode.ranges + after - before;
        self.ranges = self.ranges + after - before;
        true
    }

    pub(super) fn remove(&mut self, inode: NodeId, owner: LockOwner) -> Vec<Arc<Holder>> {
        let Some(of_inode) = self.inodes.get_mut(&inode) else { return Vec::new() };
        let Some(entry) = of_inode.owners.remove(&owner) else { return Vec::new() };
        of_inode.ranges -= entry.locks.len();
        self.ranges -= entry.locks.len();
        if of_inode.owners.is_empty() {
            self.inodes.remove(&inode);
        }
        vec![entry.holder]
    }
}

impl Inode {
    pub(super) fn others(&self, than: LockOwner) -> impl Iterator<Item = (LockOwner, &Entry)> {
        self.owners.iter().filter(move |(owner, _)| **owner != than).map(|(owner, entry)| (*owner, entry))
    }
}
