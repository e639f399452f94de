//! A lock that panics instead of waiting.

#![expect(unsafe_code, reason = "a raw lock is promised to exclude")]

use std::sync::atomic::{AtomicBool, Ordering};

/// A lock for one thread: taking it twice panics instead of waiting forever.
pub(super) struct OneThread(AtomicBool);

// SAFETY: `try_lock` gives the lock to whoever turns the flag from false to true, and to nobody until `unlock` turns it
// back; `lock` returns only after that.
unsafe impl lock_api::RawMutex for OneThread {
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        assert!(self.try_lock(), "the only thread waits for a lock that it holds");
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}
