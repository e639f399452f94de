//! The lock state of one of the guest's open files.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

/// Part of every open file. Records whether locks were requested through it, which determines when they end.
///
/// FLUSH ends a process's locks. Only RELEASE ends the locks of an open file description, and those of a process whose
/// FLUSH was not sent because writing back its data failed.
#[derive(Debug)]
pub(crate) struct LockingFile {
    /// Never used for another open file.
    id: u64,
    /// Whether a lock was ever requested. Like the next field, protected by the table of [`super::owners`].
    has_asked: AtomicBool,
    is_released: AtomicBool,
}

impl Default for LockingFile {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), has_asked: AtomicBool::default(), is_released: AtomicBool::default() }
    }
}

/// The open files through which an owner has requested locks on one inode.
///
/// Bounded by [`OPEN_FILES_MAX`]. Locks requested through files beyond that end with FLUSH or with the other files.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Vec<u64>);

/// A process seldom opens one file more than a few times, and a description is one open file.
const OPEN_FILES_MAX: usize = 256;

impl OpenFiles {
    /// Adds `file`. Errors: EBADF after its RELEASE.
    pub(super) fn add(&mut self, file: &LockingFile) -> Result<(), Errno> {
        if file.is_released.load(Relaxed) {
            return Err(Errno::BADF);
        }
        file.has_asked.store(true, Relaxed);
        if self.0.len() < OPEN_FILES_MAX && !self.0.contains(&file.id) {
            self.0.push(file.id);
        }
        Ok(())
    }

    /// Removes `file`; returns whether it was in the list and the last one.
    pub(super) fn remove(&mut self, file: &LockingFile) -> bool {
        let before = self.0.len();
        self.0.retain(|&id| id != file.id);
        before > 0 && self.0.is_empty()
    }
}

impl OpenFiles {
    /// Returns the numbers of the files.
    pub(super) fn ids(&self) -> &[u64] {
        &self.0
    }
}

impl LockingFile {
    /// Returns a number that no other open file of this process has.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Refuses locks from now on; returns whether one was ever requested.
    pub(super) fn release(&self) -> bool {
        self.is_released.store(true, Relaxed);
        self.has_asked.load(Relaxed)
    }
}
