//! The thread that reclaims ranges while little of the window is free, if the platform has threads.
//!
//! It holds the volume only while it works, so it keeps nothing alive and ends with the volume.

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicBool, Ordering};

use super::Window;
use crate::{
    platform::{Event as _, Platform},
    volume::Shared,
};

/// Maximum number of ranges that one round unmaps: the ranges of a file take one request.
const BATCH: usize = 32;
/// Interval between rounds while less than a fifth is free, in nanoseconds.
const LOOK_NS: u64 = 100_000_000;

/// Wakes the thread, and tells it to end.
#[derive(Default)]
pub(super) struct Wanted<E> {
    event: E,
    is_wanted: AtomicBool,
    is_over: AtomicBool,
    has_thread: AtomicBool,
    /// The thread will check again by itself, so a request that finds no slot need not wake it.
    is_looking: AtomicBool,
}

impl<E: crate::platform::Event> Wanted<E> {
    /// Makes the thread check. Returns false if there is no thread.
    pub(super) fn ask(&self) -> bool {
        if !self.has_thread.load(Ordering::Relaxed) {
            return false;
        }
        if !self.is_looking.load(Ordering::Relaxed) && !self.is_wanted.swap(true, Ordering::AcqRel) {
            self.event.wake_all();
        }
        true
    }

    /// Returns whether the thread checks again by itself, and so advances the time.
    pub(super) fn is_looking(&self) -> bool {
        self.is_looking.load(Ordering::Relaxed)
    }
}

/// Ends the thread when it is dropped.
pub(crate) struct Worker<P: Platform>(Arc<Window<P>>);

impl<P: Platform> Worker<P> {
    /// Starts a thread for `window`, which belongs to `shared`.
    pub(crate) fn start(window: &Arc<Window<P>>, shared: &Arc<Shared<P>>) -> Self {
        let (of_thread, volume) = (Arc::clone(window), Arc::downgrade(shared));
        window.wanted.has_thread.store(true, Ordering::Relaxed);
        let spawned = shared.session.platform().spawn("dax", Box::new(move || run(&of_thread, &volume)));
        if spawned.is_err() {
            window.wanted.has_thread.store(false, Ordering::Relaxed);
        }
        Self(Arc::clone(window))
    }
}

impl<P: Platform> Drop for Worker<P> {
    fn drop(&mut self) {
        self.0.wanted.is_over.store(true, Ordering::Release);
        self.0.wanted.event.wake_all();
    }
}

fn run<P: Platform>(window: &Window<P>, volume: &Weak<Shared<P>>) {
    let Wanted { event, is_wanted, is_over, is_looking, .. } = &window.wanted;
    let is_called = || is_over.load(Ordering::Acquire) || is_wanted.swap(false, Ordering::AcqRel);
    let mut deadline_ns = None;
    loop {
        event.wait(&mut || is_called(), deadline_ns);
        let Some(shared) = volume.upgrade().filter(|_| !is_over.load(Ordering::Acquire)) else { return };
        window.reclaim(&shared.session, BATCH);
        // While little is free, ranges that become idle are reclaimed without a request.
        deadline_ns = window.is_scarce().then(|| shared.now_ns().saturating_add(LOOK_NS));
        is_looking.store(deadline_ns.is_some(), Ordering::Relaxed);
    }
}
