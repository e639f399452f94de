//! How long a waiter looks for its reply before it sleeps: as long as replies usually take, if that is short.

use core::sync::atomic::{AtomicU32, Ordering};

/// The share that a new round trip has in the average: 1/8.
const WEIGHT_SHIFT: u32 = 3;

/// Where polling did not pay, one waiter in so many tries again: the average then holds the time that a wake takes, which may
/// alone be longer than a poll. The cost is a 64th of a poll for each call.
const CALLS_PER_TRIAL: u32 = 64;

/// The usual round trip of a queue.
pub(super) struct Pace {
    poll_max_ns: u32,
    pollers_max: u32,
    usual_ns: AtomicU32,
    pollers: AtomicU32,
    /// Waiters for whom polling did not pay.
    sleepers: AtomicU32,
}

impl Pace {
    pub(super) fn new(poll_max_ns: u32, pollers_max: u32) -> Self {
        Self {
            poll_max_ns,
            pollers_max,
            usual_ns: AtomicU32::new(0),
            pollers: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// How long to poll, in nanoseconds; nothing where it does not pay, or enough do so already. Each that was given is ended
    /// with [`Self::end`].
    pub(super) fn begin(&self) -> Option<u64> {
        if self.poll_max_ns == 0 || (!self.is_short() && !self.is_trial()) {
            return None;
        }
        if self.pollers.fetch_add(1, Ordering::Relaxed) >= self.pollers_max {
            self.pollers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.poll_max_ns.into())
    }

    /// A poll is over; what it waited for came after `found_ns`, if it did.
    pub(super) fn end(&self, found_ns: Option<u64>) {
        self.pollers.fetch_sub(1, Ordering::Relaxed);
        if let Some(found_ns) = found_ns
            && !self.is_short()
        {
            self.usual_ns.store(found_ns.min(self.poll_max_ns.into()) as u32, Ordering::Relaxed);
        }
    }

    fn is_short(&self) -> bool {
        self.usual_ns.load(Ordering::Relaxed) <= self.poll_max_ns
    }

    fn is_trial(&self) -> bool {
        self.sleepers.fetch_add(1, Ordering::Relaxed) % CALLS_PER_TRIAL == CALLS_PER_TRIAL - 1
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

#[cfg(test)]
mod tests {
    use super::*;

    const POLL: u32 = 1000;

    #[test]
    fn replies_that_come_late_end_polling_until_a_trial_finds_one_in_time() {
        let pace = Pace::new(POLL, 2);
        assert_eq!(pace.begin(), Some(POLL.into()));
        pace.end(None);
        (0..20).for_each(|_| pace.took(u64::MAX));
        let waits = (0..CALLS_PER_TRIAL).filter(|_| pace.begin().is_some()).count();
        assert_eq!(waits, 1);
        pace.end(Some(10));
        assert_eq!(pace.begin(), Some(POLL.into()));
    }

    #[test]
    fn no_more_threads_poll_than_may() {
        let pace = Pace::new(POLL, 1);
        assert!(pace.begin().is_some() && pace.begin().is_none());
        pace.end(Some(1));
        assert!(pace.begin().is_some());
    }
}
