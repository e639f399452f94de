//! Locks, each with a rank in the library's lock [order](rank).
//!
//! A [`Mutex`] uses the platform's [`RawMutex`](crate::Platform::RawMutex) and guards short sections only. A lock that
//! is held across requests is a [`SleepLock`], built on the platform's [`Event`](crate::platform::Event).

pub(crate) mod atomic;
pub(crate) mod rank;
#[cfg(all(test, debug_assertions))]
mod rank_test;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::platform::{Event as _, Platform};

/// A lock for short sections.
pub(crate) type Mutex<P, const RANK: u8, T> = lock_api::Mutex<rank::Ranked<P, RANK>, T>;
/// Holds a [`Mutex`] until it is dropped.
pub(crate) type MutexGuard<'a, P, const RANK: u8, T> = lock_api::MutexGuard<'a, rank::Ranked<P, RANK>, T>;

/// A mutual-exclusion lock whose waiters sleep. Not fair.
pub(crate) struct SleepLock<P: Platform, const RANK: u8> {
    is_held: AtomicBool,
    waiters: AtomicUsize,
    event: P::Event,
}

/// Holds a [`SleepLock`] until it is dropped, by the thread that took it.
#[must_use = "the lock is free again at once"]
pub(crate) struct SleepGuard<'a, P: Platform, const RANK: u8>(&'a SleepLock<P, RANK>);

impl<P: Platform, const RANK: u8> Default for SleepLock<P, RANK> {
    fn default() -> Self {
        Self { is_held: AtomicBool::new(false), waiters: AtomicUsize::new(0), event: P::Event::default() }
    }
}

impl<P: Platform, const RANK: u8> SleepLock<P, RANK> {
    /// Takes the lock, blocking until it is free.
    pub(crate) fn lock(&self) -> SleepGuard<'_, P, RANK> {
        rank::wants::<P>(RANK);
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        // A waiter announces itself before it tries the lock again, and the holder checks for waiters after it has
        // released the lock: one of the two sees the other.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while !self.event.wait(&mut || self.take(), None) {}
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        SleepGuard::new(self)
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<SleepGuard<'_, P, RANK>> {
        self.take().then(|| SleepGuard::new(self))
    }

    fn take(&self) -> bool {
        !self.is_held.swap(true, Ordering::SeqCst)
    }
}

impl<'a, P: Platform, const RANK: u8> SleepGuard<'a, P, RANK> {
    /// Creates the guard of a lock that was taken.
    fn new(lock: &'a SleepLock<P, RANK>) -> Self {
        rank::took::<P>(RANK);
        Self(lock)
    }
}

impl<P: Platform, const RANK: u8> Drop for SleepGuard<'_, P, RANK> {
    fn drop(&mut self) {
        rank::gave::<P>(RANK);
        self.0.is_held.store(false, Ordering::SeqCst);
        if self.0.waiters.load(Ordering::SeqCst) > 0 {
            self.0.event.wake_all();
        }
    }
}
