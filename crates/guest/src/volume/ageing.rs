//! The thread that writes back data once it has been dirty long enough, if the platform has threads.
//!
//! It holds the volume only while it writes, so it keeps nothing alive and ends with the volume.

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicBool, Ordering};

use transom_wire::ops::init::InitFlags;

use super::Shared;
use crate::platform::{Event as _, Platform};

/// Checks per dirty age: data is written at most this fraction of the age too late.
const LOOKS_PER_AGE: u64 = 4;

/// Ends the thread when it is dropped.
pub(super) struct Ageing<P: Platform>(Arc<State<P>>);

struct State<P: Platform> {
    is_over: AtomicBool,
    over: P::Event,
}

impl<P: Platform> Ageing<P> {
    /// Starts a thread for `shared`, unless nothing is ever dirty.
    ///
    /// Without threads, dirty pages are written by pressure, fsync and close, and by
    /// [`Volume::write_back`](super::Volume::write_back).
    pub(super) fn start(shared: &Arc<Shared<P>>) -> Self {
        let state = Arc::new(State { is_over: AtomicBool::new(false), over: P::Event::default() });
        let is_needed = shared.session.negotiated().flags.contains(InitFlags::WRITEBACK_CACHE)
            && shared.options.dirty_age_ns != 0
            && shared.options.data_max_bytes != 0;
        if is_needed {
            let (of_thread, volume) = (Arc::clone(&state), Arc::downgrade(shared));
            // The platform returns the task if it has no threads.
            let _ = shared.session.platform().spawn("write-back", Box::new(move || of_thread.run(&volume)));
        }
        Self(state)
    }
}

impl<P: Platform> Drop for Ageing<P> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Release);
        self.0.over.wake_all();
    }
}

impl<P: Platform> State<P> {
    fn run(&self, volume: &Weak<Shared<P>>) {
        loop {
            let Some(shared) = volume.upgrade() else { return };
            let age_ns = shared.options.dirty_age_ns;
            shared.write_back(age_ns);
            let again_ns = shared.now_ns().saturating_add((age_ns / LOOKS_PER_AGE).max(1));
            drop(shared);
            if self.over.wait(&mut || self.is_over.load(Ordering::Acquire), Some(again_ns)) {
                return;
            }
        }
    }
}
