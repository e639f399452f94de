//! The known inodes by file handle: how changes of the host, which name a directory or a file by its handle, find the
//! nodeid.
//!
//! Empty unless changes are announced. Handles are kept as hashes, and compared with the entry that a hash leads to.
//! The lock is the innermost, held for one lookup or change.

use std::{
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hashbrown::{DefaultHashBuilder, HashMap};
use rustix::fs::{AtFlags, FileType};
use transom_wire::NodeId;

use super::{
    Inodes,
    identity::Hold,
    lock,
    shard::{Entry, Shard},
};
use crate::{
    Errno,
    sysfd::{FileHandle, MountId, RawFileHandle, stat},
};

/// Nodeids by handle.
#[derive(Debug, Default)]
pub(super) struct ByHandle {
    /// `None` if nobody asks.
    index: Option<Index>,
}

#[derive(Debug)]
struct Index {
    root: RawFileHandle,
    /// 17 bytes for each inode, by the hash of its handle.
    nodeids: Mutex<HashMap<u64, NodeId>>,
    hasher: DefaultHashBuilder,
}

impl ByHandle {
    fn with_root(root: RawFileHandle) -> Self {
        Self { index: Some(Index { root, nodeids: Mutex::default(), hasher: DefaultHashBuilder::default() }) }
    }

    /// Returns the key of an inode that is about to be inserted, if it has to be indexed.
    pub(super) fn key(&self, hold: &Hold) -> Option<u64> {
        let index = self.index.as_ref()?;
        hold.handle().map(|handle| index.hash(handle.type_(), handle.bytes()))
    }

    /// Returns whether inodes have to be indexed.
    pub(super) fn is_used(&self) -> bool {
        self.index.is_some()
    }

    pub(super) fn insert(&self, key: u64, nodeid: NodeId) {
        if let Some(index) = &self.index {
            index.lock().insert(key, nodeid);
        }
    }
}

impl Index {
    fn hash(&self, type_: i32, bytes: &[u8]) -> u64 {
        self.hasher.hash_one((type_, bytes))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, NodeId>> {
        self.nodeids.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inodes {
    /// Indexes inodes by handle. Errors: the root has no handle.
    pub(in crate::passthrough) fn by_handle(mut self) -> Result<Self, Errno> {
        let stat = stat::statx(&self.root.fd, AtFlags::empty(), stat::IDENTITY)?;
        let mount = stat::mount_id(&stat).unwrap_or(MountId(0));
        let root = FileHandle::of(&self.root.fd, mount)?;
        self.by_handle = ByHandle::with_root(RawFileHandle::from(&root));
        Ok(self)
    }

    /// Returns nodeid and type of the inode with this handle, if the guest knows it.
    pub(crate) fn find_by_handle(&self, handle: &RawFileHandle) -> Option<(NodeId, FileType)> {
        let index = self.by_handle.index.as_ref()?;
        if *handle == index.root {
            return Some((NodeId::ROOT, self.root.file_type));
        }
        let nodeid = index.lock().get(&index.hash(handle.type_, &handle.bytes)).copied()?;
        let shard = self.shard(nodeid);
        let entry = shard.entries.get(nodeid.0)?;
        let known = entry.hold.handle()?;
        let is_it = (known.type_(), known.bytes()) == (handle.type_, &handle.bytes);
        is_it.then_some((nodeid, entry.file_type))
    }

    /// Removes an inode from the index after its entry was removed.
    pub(super) fn leave_index(&self, entry: &Entry) {
        let (Some(index), Some(key)) = (&self.by_handle.index, self.by_handle.key(&entry.hold)) else { return };
        // The same inode may have been inserted anew.
        let Some(nodeid) = index.lock().get(&key).copied() else { return };
        if self.shard(nodeid).entries.get(nodeid.0).is_none() {
            let mut nodeids = index.lock();
            if nodeids.get(&key) == Some(&nodeid) {
                nodeids.remove(&key);
            }
        }
    }

    /// Returns the inodes that the guest knows besides the root, or `None` if they are more than `max`.
    pub(crate) fn known_up_to(&self, max: usize) -> Option<Vec<(NodeId, FileType)>> {
        if self.capacity.known() > max {
            return None;
        }
        let mut known = Vec::new();
        for shard in &self.shards {
            known.extend(lock(shard).entries.iter().map(|(key, entry)| (NodeId(key), entry.file_type)));
        }
        Some(known)
    }

    /// Counts a lookup of an inode that the guest knows; returns its type and number, or `None` if it does not.
    pub(crate) fn count_again(&self, nodeid: NodeId) -> Option<(FileType, u64)> {
        if nodeid == NodeId::ROOT {
            return Some((self.root.file_type, self.root_identity.ino));
        }
        let mut shard = self.shard(nodeid);
        let shard: &mut Shard = &mut shard;
        let entry = shard.entries.get_mut(nodeid.0)?;
        if entry.lookups == 0 {
            return None;
        }
        entry.lookups += 1;
        Some((entry.file_type, entry.identity.ino))
    }
}
