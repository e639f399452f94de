//! A lock whose holder may wait for the device.
//!
//! The platform's [`RawMutex`](crate::Platform::RawMutex) guards short sections only; what is held across requests is a
//! [`SleepLock`], built on the platform's [`Event`].

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::platform::Event;

/// Excludes; whoever has to wait sleeps. Not fair.
#[derive(Default)]
pub(crate) struct SleepLock<E> {
    is_held: AtomicBool,
    waiters: AtomicUsize,
    event: E,
}

/// Holds a [`SleepLock`] until it is dropped.
#[must_use = "the lock is free again at once"]
pub(crate) struct SleepGuard<'a, E: Event>(&'a SleepLock<E>);

impl<E: Event> SleepLock<E> {
    /// Waits until nobody holds the lock.
    pub(crate) fn lock(&self) -> SleepGuard<'_, E> {
        if let Some(guard) = self.try_lock() {
            return guard;
        }
        // Announced before the lock is tried again, and looked at after it was freed: one of the two sees the other.
        self.waiters.fetch_add(1, Ordering::SeqCst);
        while !self.event.wait(&mut || self.take(), None) {}
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        SleepGuard(self)
    }

    /// Takes the lock if nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<SleepGuard<'_, E>> {
        self.take().then(|| SleepGuard(self))
    }

    fn take(&self) -> bool {
        !self.is_held.swap(true, Ordering::SeqCst)
    }
}

impl<E: Event> Drop for SleepGuard<'_, E> {
    fn drop(&mut self) {
        self.0.is_held.store(false, Ordering::SeqCst);
        if self.0.waiters.load(Ordering::SeqCst) > 0 {
            self.0.event.wake_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Never;

    impl Event for Never {
        fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
            is_done()
        }

        fn wake_all(&self) {}
    }

    #[test]
    fn who_does_not_get_the_lock_leaves_it_with_its_holder() {
        let lock = SleepLock::<Never>::default();
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        assert!(lock.try_lock().is_none());
        drop(held);
        assert!(lock.try_lock().is_some());
        assert!(lock.try_lock().is_some());
    }
}
