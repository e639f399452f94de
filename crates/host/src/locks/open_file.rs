//! An open file of the guest, as far as locks are concerned.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use rustix::io::Errno;

/// Part of every open file: through which one an owner has locked says when its locks end.
///
/// FLUSH ends a process's locks. Nothing but RELEASE ends those of an open file description, and those of a process whose
/// FLUSH was not sent because writing back its data failed.
#[derive(Debug)]
pub(crate) struct LockingFile {
    /// No other open file has it, ever.
    id: u64,
    /// Somebody has asked for a lock. Protected, as the next one, by the table of [`super::owners`].
    has_asked: AtomicBool,
    is_released: AtomicBool,
}

impl Default for LockingFile {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self { id: NEXT.fetch_add(1, Relaxed), has_asked: AtomicBool::default(), is_released: AtomicBool::default() }
    }
}

/// The open files through which an owner has asked for locks on one inode.
///
/// Bounded by [`OPEN_FILES_MAX`]. What is left out ends with FLUSH, or with the others.
#[derive(Debug, Default)]
pub(super) struct OpenFiles(Vec<u64>);

/// A process seldom has one file open more than a few times, and a description is one open file.
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

    /// Removes `file`; returns whether it was there and the last one.
    pub(super) fn remove(&mut self, file: &LockingFile) -> bool {
        let before = self.0.len();
        self.0.retain(|&id| id != file.id);
        before > 0 && self.0.is_empty()
    }
}

impl LockingFile {
    /// Takes no more locks; returns whether somebody has asked for one.
    pub(super) fn release(&self) -> bool {
        self.is_released.store(true, Relaxed);
        self.has_asked.load(Relaxed)
    }
}
