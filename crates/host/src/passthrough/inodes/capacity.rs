//! The limit on inodes that the guest may know.

use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use crate::Errno;

/// Counts known inodes against a limit. Takes no lock.
#[derive(Debug)]
pub(crate) struct Capacity {
    known: AtomicUsize,
    limit: usize,
    refusals: AtomicU64,
    has_warned: AtomicBool,
}

impl Capacity {
    /// Creates a count with a limit.
    pub(crate) fn new(limit: usize) -> Self {
        let (known, refusals) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { known, limit, refusals, has_warned: AtomicBool::new(false) }
    }

    /// Returns the number of known inodes.
    pub(crate) fn known(&self) -> usize {
        self.known.load(Relaxed)
    }

    /// Returns the maximum number of known inodes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of requests refused because of the limit.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Relaxed)
    }

    /// Checks that another inode fits at this moment. Errors: ENFILE.
    pub(super) fn check(&self) -> Result<(), Errno> {
        if self.known.load(Acquire) < self.limit { Ok(()) } else { Err(self.refuse_with_enfile()) }
    }

    /// Counts one more inode. Errors: ENFILE if the limit is reached.
    pub(super) fn add(&self) -> Result<(), Errno> {
        let add_one = |known| (known < self.limit).then_some(known + 1);
        self.known.fetch_update(AcqRel, Acquire, add_one).map(drop).map_err(|_| self.refuse_with_enfile())
    }

    /// Counts one inode less.
    pub(super) fn remove(&self) {
        self.known.fetch_sub(1, AcqRel);
    }

    fn refuse_with_enfile(&self) -> Errno {
        self.refusals.fetch_add(1, Relaxed);
        if !self.has_warned.swap(true, Relaxed) {
            tracing::warn!(
                limit = self.limit,
                "inode limit reached: new inodes fail with ENFILE until the guest forgets some"
            );
        }
        Errno::NFILE
    }
}
