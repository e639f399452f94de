//! Spin locks between processors. Whoever holds one has interrupts off, so no handler waits for what it interrupted.
//!
//! Locks may be released in any order: the processor counts those that it holds, and lets interrupts in with the last.
//! A processor that spins keeps answering the others, see [`arch::relax`].

#![expect(unsafe_code, reason = "implements a lock")]

use core::sync::atomic::{AtomicBool, Ordering};

use lock_api::GuardNoSend;

use super::{arch, processors};

/// A value that one processor at a time uses, for a moment.
pub(super) type Lock<T> = lock_api::Mutex<RawLock, T>;

/// The lock of [`Lock`], and of the guest library.
pub(super) struct RawLock {
    is_held: AtomicBool,
}

// SAFETY: the swap succeeds for one processor until it stores false again, and nothing else runs on that processor
// meanwhile, since its interrupts are off.
unsafe impl lock_api::RawMutex for RawLock {
    const INIT: Self = Self { is_held: AtomicBool::new(false) };

    /// The processor that took a lock releases it, because it counts them.
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        processors::this().keep_quiet();
        while self.is_held.swap(true, Ordering::Acquire) {
            while self.is_held.load(Ordering::Relaxed) {
                arch::relax();
            }
        }
    }

    fn try_lock(&self) -> bool {
        processors::this().keep_quiet();
        let is_taken = !self.is_held.swap(true, Ordering::Acquire);
        if !is_taken {
            processors::this().end_quiet();
        }
        is_taken
    }

    unsafe fn unlock(&self) {
        self.is_held.store(false, Ordering::Release);
        processors::this().end_quiet();
    }
}
