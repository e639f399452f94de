//! Mapped files on DAX storage, each kept once however many of its ranges are mapped.
//!
//! A file on other storage costs one system call.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Statx, StatxAttributes, StatxFlags, statx};

/// Files in use, by device and inode number. Locked briefly.
#[derive(Debug, Default)]
pub(super) struct PersistentFiles(Mutex<HashMap<(u32, u32, u64), Weak<OwnedFd>>>);

impl PersistentFiles {
    /// Returns a descriptor for `file`, which is open for writing, if it is on DAX storage and the process may open
    /// another one.
    pub(super) fn keep(&self, file: impl AsFd) -> Option<Arc<OwnedFd>> {
        let stat = statx(&file, "", AtFlags::EMPTY_PATH, StatxFlags::INO).ok().filter(is_dax)?;
        let mut files = self.0.lock();
        let id = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        if let Some(kept) = files.get(&id).and_then(Weak::upgrade) {
            return Some(kept);
        }
        files.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(file.as_fd().try_clone_to_owned().ok()?);
        files.insert(id, Arc::downgrade(&file));
        Some(file)
    }
}

fn is_dax(stat: &Statx) -> bool {
    stat.stx_attributes_mask.contains(StatxAttributes::DAX) && stat.stx_attributes.contains(StatxAttributes::DAX)
}
