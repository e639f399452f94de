//! The known directories by file handle: how changes of the host, which name a directory by its handle, find its nodeid.
//!
//! Empty unless changes are announced. The lock is the innermost, held for one lookup or change.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use rustix::fs::FileType;
use transom_wire::NodeId;

use super::{
    Inodes,
    identity::Hold,
    shard::{Entry, Shard},
};
use crate::sysfd::RawFileHandle;

/// Nodeids of directories by handle.
#[derive(Debug, Default)]
pub(super) struct Directories {
    /// `None` if nobody asks.
    by_handle: Option<Mutex<HashMap<RawFileHandle, NodeId>>>,
}

impl Directories {
    pub(super) fn enabled() -> Self {
        Self { by_handle: Some(Mutex::default()) }
    }

    /// Returns the handle of a directory that is about to be inserted, if it has to be indexed.
    pub(super) fn wanted(&self, file_type: FileType, hold: &Hold) -> Option<RawFileHandle> {
        let is_wanted = self.by_handle.is_some() && file_type == FileType::Directory;
        hold.handle().filter(|_| is_wanted).map(RawFileHandle::from)
    }

    pub(super) fn insert(&self, handle: RawFileHandle, nodeid: NodeId) {
        if let Some(mut by_handle) = self.lock() {
            by_handle.insert(handle, nodeid);
        }
    }

    fn lock(&self) -> Option<MutexGuard<'_, HashMap<RawFileHandle, NodeId>>> {
        Some(self.by_handle.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Inodes {
    /// Returns the nodeid of the directory with this handle, if the guest knows it.
    pub(crate) fn directory_by_handle(&self, handle: &RawFileHandle) -> Option<NodeId> {
        self.directories.lock()?.get(handle).copied()
    }

    /// Removes a directory from the index after its entry was removed.
    pub(super) fn leave_index(&self, entry: &Entry) {
        let Some(handle) = self.directories.wanted(entry.file_type, &entry.hold) else { return };
        // The same directory may have been inserted anew.
        let Some(nodeid) = self.directory_by_handle(&handle) else { return };
        if nodeid != NodeId::ROOT
            && self.shard(nodeid).entries.get(nodeid.0).is_none()
            && let Some(mut by_handle) = self.directories.lock()
            && by_handle.get(&handle) == Some(&nodeid)
        {
            by_handle.remove(&handle);
        }
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
