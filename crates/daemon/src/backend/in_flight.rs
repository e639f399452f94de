//! Counts a queue's requests between their popping and their completion, so that a stop can wait for them.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How often those that wait for a lock are woken while a stop waits for them.
const WAKE_EVERY: Duration = Duration::from_millis(5);

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

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        *self.lock()
    }

    /// Waits until no request is in flight.
    ///
    /// Calls `interrupt` time and again, since a request may begin to wait after one call.
    pub(super) fn drain(&self, interrupt: impl Fn()) {
        while *self.lock() != 0 {
            interrupt();
            let count = self.lock();
            let waited = self.is_zero.wait_timeout_while(count, WAKE_EVERY, |count| *count != 0);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
