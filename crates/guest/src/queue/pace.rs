//! How long a waiter looks for its reply before it sleeps: as long as replies usually take, if that is short.

use core::sync::atomic::{AtomicU32, Ordering};

/// The share that a new round trip has in the average: 1/8.
const WEIGHT_SHIFT: u32 = 3;

/// The usual round trip of a queue.
pub(super) struct Pace {
    poll_max_ns: u32,
    pollers_max: u32,
    usual_ns: AtomicU32,
    pollers: AtomicU32,
}

impl Pace {
    pub(super) fn new(poll_max_ns: u32, pollers_max: u32) -> Self {
        Self { poll_max_ns, pollers_max, usual_ns: AtomicU32::new(0), pollers: AtomicU32::new(0) }
    }

    /// How long to poll, in nanoseconds; nothing where it does not pay, or enough do so already. Each that was given is ended
    /// with [`Self::end`].
    pub(super) fn begin(&self) -> Option<u64> {
        if self.poll_max_ns == 0 || self.usual_ns.load(Ordering::Relaxed) > self.poll_max_ns {
            return None;
        }
        if self.pollers.fetch_add(1, Ordering::Relaxed) >= self.pollers_max {
            self.pollers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.poll_max_ns.into())
    }

    pub(super) fn end(&self) {
        self.pollers.fetch_sub(1, Ordering::Relaxed);
    }

    /// A reply took so long. Two threads that tell at the same time may lose one of the two, which an average bears.
    pub(super) fn took(&self, ns: u64) {
        // One that was very late says no more than that it was late.
        let ns = ns.min(4 * u64::from(self.poll_max_ns)) as u32;
        let usual = self.usual_ns.load(Ordering::Relaxed);
        let next = usual - (usual >> WEIGHT_SHIFT) + (ns >> WEIGHT_SHIFT);
        self.usual_ns.store(next, Ordering::Relaxed);
    }

    /// In nanoseconds.
    pub(super) fn usual_ns(&self) -> u32 {
        self.usual_ns.load(Ordering::Relaxed)
    }
}
