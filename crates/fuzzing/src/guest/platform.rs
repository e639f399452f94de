//! A platform with one thread, where time only passes when the clock is read.

use std::sync::atomic::{AtomicU64, Ordering};

use transom_guest::platform::{self, Platform};

use super::lock::OneThread;

/// What one look at the clock takes: so long that polling ends after a few, since nothing changes meanwhile.
const LOOK_NS: u64 = 50_000;

#[derive(Default)]
pub(super) struct Lone {
    now_ns: AtomicU64,
}

impl Platform for Lone {
    type RawMutex = OneThread;
    type Event = Nobody;

    fn now_ns(&self) -> u64 {
        self.now_ns.fetch_add(LOOK_NS, Ordering::Relaxed)
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

/// Nobody else is there to be waited for.
#[derive(Default)]
pub(super) struct Nobody;

impl platform::Event for Nobody {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        let is_done = is_done();
        assert!(is_done || deadline_ns.is_some(), "the only thread waits for another");
        is_done
    }

    fn wake_all(&self) {}
}
