//! Counts a queue's requests between their popping and their completion, so that a stop can wait for them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The requests in flight of one queue.
#[derive(Default)]
pub(super) struct InFlight {
    count: Mutex<u32>,
    is_zero: Condvar,
}

impl InFlight {
    pub(super) fn begin(&self) {
        *self.lock() += 1;
    }

    pub(super) fn end(&self) {
        let mut count = self.lock();
        *count -= 1;
        if *count == 0 {
            self.is_zero.notify_all();
        }
    }

    /// Waits until no request is in flight.
    pub(super) fn drain(&self) {
        let mut count = self.lock();
        while *count != 0 {
            count = self.is_zero.wait(count).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
