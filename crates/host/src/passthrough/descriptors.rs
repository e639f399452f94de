//! Counts the descriptors held for the guest, and limits them.
//!
//! [`Descriptors`] only counts. Open files are admitted up to a fraction of the limit, because they cannot be revoked.
//! Descriptors of inodes fill the rest, and [`Inodes`](super::inodes::Inodes) closes the oldest of them when the sum
//! exceeds the limit. Counters are exact but unordered: each thread may exceed a limit by one for a moment.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::Errno;

/// The lowest valid limit: with less, a walk could not keep a directory open while it looks into it.
pub(super) const LIMIT_MIN: usize = 32;

/// Counts of descriptors.
#[derive(Debug)]
pub(super) struct Descriptors {
    limit: usize,
    held: AtomicUsize,
    open_files: AtomicUsize,
    pinned: AtomicUsize,
}

/// Counts one open file until it is dropped.
#[derive(Debug)]
pub(super) struct OpenFileSlot<'a>(&'a Descriptors);

impl Descriptors {
    pub(super) fn new(limit: usize) -> Self {
        let zero = AtomicUsize::default;
        Self { limit: limit.max(LIMIT_MIN), held: zero(), open_files: zero(), pinned: zero() }
    }

    /// Returns what the process's soft limit leaves after a reserve for queues, sockets, guest memory and requests in
    /// flight.
    pub(super) fn default_limit() -> usize {
        let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let soft = soft.map_or(usize::MAX, |soft| usize::try_from(soft).unwrap_or(usize::MAX));
        // Nine queues with two descriptors each, up to 509 memory regions with CONFIGURE_MEM_SLOTS but 8 without, and
        // per thread at most three descriptors that are open for the length of a request.
        const RESERVE_MAX: usize = 1024;
        soft - RESERVE_MAX.min(soft / 4)
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of files and directories that the guest has open.
    pub(super) fn open_files(&self) -> usize {
        self.open_files.load(Relaxed)
    }

    /// Returns the number of descriptors held.
    pub(super) fn held(&self) -> usize {
        self.held.load(Relaxed)
    }

    /// Returns the number of pinned descriptors.
    #[cfg(test)]
    pub(super) fn pinned(&self) -> usize {
        self.pinned.load(Relaxed)
    }

    /// Returns whether more descriptors are held than the limit allows.
    pub(super) fn is_over(&self) -> bool {
        self.held.load(Relaxed) > self.limit
    }

    /// Counts a descriptor of an inode or a mount.
    pub(super) fn add(&self) {
        self.held.fetch_add(1, Relaxed);
    }

    /// Undoes [`Descriptors::add`].
    pub(super) fn remove(&self) {
        self.held.fetch_sub(1, Relaxed);
    }

    /// Counts one more pinned inode, whose descriptor must not be closed. Returns false if that exceeds a quarter of
    /// the limit.
    pub(super) fn try_pin(&self) -> bool {
        let max = self.limit / 4;
        self.pinned.fetch_update(Relaxed, Relaxed, |pinned| (pinned < max).then_some(pinned + 1)).is_ok()
    }

    /// Undoes [`Descriptors::try_pin`].
    pub(super) fn unpin(&self) {
        self.pinned.fetch_sub(1, Relaxed);
    }

    /// Counts an open file. Errors: ENFILE beyond five eighths of the limit.
    pub(super) fn open_file(&self) -> Result<OpenFileSlot<'_>, Errno> {
        let max = self.limit / 8 * 5;
        let admitted = self.open_files.fetch_update(Relaxed, Relaxed, |open| (open < max).then_some(open + 1));
        if admitted.is_err() {
            return Err(Errno::NFILE);
        }
        self.add();
        Ok(OpenFileSlot(self))
    }

    /// Undoes [`OpenFileSlot::keep`].
    pub(super) fn close_file(&self) {
        self.open_files.fetch_sub(1, Relaxed);
        self.remove();
    }
}

impl OpenFileSlot<'_> {
    /// Keeps the file counted until [`Descriptors::close_file`].
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for OpenFileSlot<'_> {
    fn drop(&mut self) {
        self.0.close_file();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_and_pins_meet_their_shares() {
        let descriptors = Descriptors::new(64);
        let slots: Vec<_> = (0..40).map(|_| descriptors.open_file().unwrap()).collect();
        assert_eq!(descriptors.open_file().err(), Some(Errno::NFILE));
        assert!((0..16).all(|_| descriptors.try_pin()));
        assert!(!descriptors.try_pin());
        drop(slots);
        descriptors.open_file().unwrap().keep();
        descriptors.close_file();
        assert_eq!(descriptors.held.load(Relaxed), 0);
    }
}
