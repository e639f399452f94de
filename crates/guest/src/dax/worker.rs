//! The thread that takes ranges back while little of the window is free, where the platform has threads.
//!
//! It holds the volume only while it works, so that it keeps nothing alive, and ends with the volume.

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

/// Ranges that one look unmaps at most: one request for a file's.
const BATCH: usize = 32;
/// How often the thread looks while less than a fifth is free, in nanoseconds.
const LOOK_NS: u64 = 100_000_000;

/// Wakes the thread, and says that it is over.
#[derive(Default)]
pub(super) struct Wanted<E> {
    event: E,
    is_wanted: AtomicBool,
    is_over: AtomicBool,
    has_thread: AtomicBool,
    /// It looks again by itself, and is not to be woken for every request that finds no place.
    is_looking: AtomicBool,
}

impl<E: crate::platform::Event> Wanted<E> {
    /// Has the thread look; false where there is none.
    pub(super) fn ask(&self) -> bool {
        if !self.has_thread.load(Ordering::Relaxed) {
            return false;
        }
        if !self.is_looking.load(Ordering::Relaxed) && !self.is_wanted.swap(true, Ordering::AcqRel) {
            self.event.wake_all();
        }
        true
    }

    /// Whether the thread looks again by itself, and sees to it that time passes.
    pub(super) fn is_looking(&self) -> bool {
        self.is_looking.load(Ordering::Relaxed)
    }
}

/// Ends the thread when it is dropped.
pub(crate) struct Worker<P: Platform>(Arc<Window<P>>);

impl<P: Platform> Worker<P> {
    /// Starts a thread for `window`, which is `shared`'s.
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
        // As long as little is free, whatever becomes idle is taken without being asked.
        deadline_ns = window.is_scarce().then(|| shared.now_ns().saturating_add(LOOK_NS));
        is_looking.store(deadline_ns.is_some(), Ordering::Relaxed);
    }
}
