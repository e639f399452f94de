//! Releases what a removed entry used, and its ancestors that were kept only for it.

use std::sync::atomic::Ordering::Relaxed;

use rustix::fs::FileType;
use transom_wire::NodeId;

use super::{Inodes, identity::Hold, shard::Entry};

impl Inodes {
    /// Undoes [`Inodes::add_child`] for the path in `hold`, if it is one.
    pub(super) fn leave_parent(&self, hold: &Hold) {
        let Hold::Path(path) = hold else { return };
        if path.parent == NodeId::ROOT {
            return;
        }
        let mut shard = self.shard(path.parent);
        let Some(entry) = shard.entries.get_mut(path.parent.0) else { return };
        entry.children = entry.children.saturating_sub(1);
        let removed = shard.remove_unused(path.parent.0);
        drop(shard);
        self.bury(removed);
    }

    /// Releases the resources of a removed entry, and its ancestors that were kept only for it.
    pub(super) fn bury(&self, mut removed: Option<Entry>) {
        while let Some(entry) = removed {
            self.release(&entry);
            let Hold::Path(path) = &entry.hold else { return };
            let parent = path.parent;
            self.spare_paths.keep(entry.hold);
            if parent == NodeId::ROOT {
                return;
            }
            let mut shard = self.shard(parent);
            let Some(entry) = shard.entries.get_mut(parent.0) else { return };
            entry.children = entry.children.saturating_sub(1);
            removed = shard.remove_unused(parent.0);
        }
    }

    /// Updates the counts for a removed entry.
    pub(super) fn release(&self, entry: &Entry) {
        self.leave_index(entry);
        if entry.file_type == FileType::Directory {
            self.ignore(&entry.identity);
        }
        self.capacity.remove();
        self.filesystems.remove_inode(entry.identity.fs, &self.descriptors);
        if entry.fd.is_none() {
            return;
        }
        self.descriptors.remove();
        if entry.is_pinned {
            self.descriptors.unpin();
        } else {
            self.spare[entry.class() as usize].fetch_sub(1, Relaxed);
        }
    }
}
