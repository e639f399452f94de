//! How many threads may poll at once.

use core::sync::atomic::{AtomicUsize, Ordering};

/// Counts the threads of a group that are polling, and bounds them.
#[derive(Debug)]
pub struct PollerLimit {
    polling: AtomicUsize,
    max: usize,
}

impl PollerLimit {
    /// Creates a limit of `max` threads.
    ///
    /// `max` should be less than the number of processors: what the threads poll for needs one too.
    pub const fn new(max: usize) -> Self {
        Self { polling: AtomicUsize::new(0), max }
    }

    /// Counts the calling thread as polling, if the limit allows it.
    pub(crate) fn enter(&self) -> bool {
        let is_allowed = self.polling.fetch_add(1, Ordering::Relaxed) < self.max;
        if !is_allowed {
            self.leave();
        }
        is_allowed
    }

    /// Ends what [`Self::enter`] began.
    pub(crate) fn leave(&self) {
        self.polling.fetch_sub(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn polling(&self) -> usize {
        self.polling.load(Ordering::Relaxed)
    }
}
