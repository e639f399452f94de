//! [`ReplyPoller`]: polls for a reply up to a limit, while replies usually come sooner.

use core::sync::atomic::{AtomicU32, Ordering};

/// The weight of a new round trip in the average: 1/8.
const WEIGHT_SHIFT: u32 = 3;

/// While polling does not pay, one waiter in this many tries it again: the average then contains the time that a
/// wake-up takes, which may alone exceed a poll. This costs 1/64 of a poll for each call.
const CALLS_PER_TRIAL: u32 = 64;

/// Decides, for all threads that wait for replies on one queue, who polls and for how long.
///
/// The threads share it without a lock. Two updates at the same time may lose one of the two, which an average can
/// bear.
#[derive(Debug)]
pub struct ReplyPoller {
    poll_max_ns: u32,
    pollers_max: u32,
    average_ns: AtomicU32,
    polling: AtomicU32,
    /// Waiters that did not poll because it does not pay.
    sleepers: AtomicU32,
}

impl ReplyPoller {
    /// Creates a poller for polls of at most `poll_max_ns`, by at most `pollers_max` threads at once.
    pub fn new(poll_max_ns: u32, pollers_max: u32) -> Self {
        Self {
            poll_max_ns,
            pollers_max,
            average_ns: AtomicU32::new(0),
            polling: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Returns how long to poll, in nanoseconds, or `None` if polling does not pay or enough threads poll already.
    ///
    /// Each `Some` must be followed by a call to [`Self::end`].
    pub fn begin(&self) -> Option<u64> {
        if self.poll_max_ns == 0 || (!self.is_average_short() && !self.is_trial()) {
            return None;
        }
        if self.polling.fetch_add(1, Ordering::Relaxed) >= self.pollers_max {
            self.polling.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(self.poll_max_ns.into())
    }

    /// Ends a poll. `found_after_ns` is how long the reply took, or `None` if the poll expired.
    pub fn end(&self, found_after_ns: Option<u64>) {
        self.polling.fetch_sub(1, Ordering::Relaxed);
        let Some(found_after_ns) = found_after_ns else { return };
        if !self.is_average_short() {
            self.average_ns.store(found_after_ns.min(self.poll_max_ns.into()) as u32, Ordering::Relaxed);
        }
    }

    /// Adds the round trip of one reply to the average.
    pub fn record_round_trip(&self, ns: u64) {
        // A very late reply says no more than that it was late.
        let ns = u32::try_from(ns.min(4 * u64::from(self.poll_max_ns))).unwrap_or(u32::MAX);
        let average = self.average_ns.load(Ordering::Relaxed);
        let next = average - (average >> WEIGHT_SHIFT) + (ns >> WEIGHT_SHIFT);
        self.average_ns.store(next, Ordering::Relaxed);
    }

    /// Returns the average round trip in nanoseconds.
    pub fn average_ns(&self) -> u32 {
        self.average_ns.load(Ordering::Relaxed)
    }

    fn is_average_short(&self) -> bool {
        self.average_ns() <= self.poll_max_ns
    }

    fn is_trial(&self) -> bool {
        self.sleepers.fetch_add(1, Ordering::Relaxed) % CALLS_PER_TRIAL == CALLS_PER_TRIAL - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLL_MAX_NS: u32 = 1000;

    #[test]
    fn late_replies_end_polling_until_a_trial_finds_one_in_time() {
        let poller = ReplyPoller::new(POLL_MAX_NS, 2);
        assert_eq!(poller.begin(), Some(POLL_MAX_NS.into()));
        poller.end(None);
        (0..20).for_each(|_| poller.record_round_trip(u64::MAX));
        let trials = (0..CALLS_PER_TRIAL).filter(|_| poller.begin().is_some()).count();
        assert_eq!(trials, 1);
        poller.end(Some(10));
        assert_eq!(poller.begin(), Some(POLL_MAX_NS.into()));
    }

    #[test]
    fn no_more_threads_poll_than_the_limit_allows() {
        let poller = ReplyPoller::new(POLL_MAX_NS, 1);
        assert!(poller.begin().is_some() && poller.begin().is_none());
        poller.end(Some(1));
        assert!(poller.begin().is_some());
    }
}
