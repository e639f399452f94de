//! How a worker polls its ring before it sleeps: [`AdaptivePoller`] with the clock of this process.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use transom_polling::{AdaptivePoller, PollerLimit};

/// The poller of one worker.
pub(super) struct RingPoller {
    poller: AdaptivePoller,
    /// The longest poll is zero: nothing that is recorded makes a difference, and no clock is read.
    never_polls: bool,
    /// What times count from.
    epoch: Instant,
}

impl RingPoller {
    /// Creates a poller that polls for at most `poll_max` at a time.
    pub(super) fn new(poll_max: Duration, limit: &Arc<PollerLimit>) -> Self {
        Self {
            poller: AdaptivePoller::new(to_ns(poll_max), limit),
            never_polls: poll_max.is_zero(),
            epoch: Instant::now(),
        }
    }

    /// Records that the worker was woken, with or without a request.
    pub(super) fn record_sleep(&mut self) {
        if !self.never_polls {
            self.poller.record_sleep();
        }
    }

    /// Records that a request was taken off the ring.
    pub(super) fn record_request(&mut self, at: Instant) {
        if !self.never_polls {
            self.poller.record_work(to_ns(at.saturating_duration_since(self.epoch)));
        }
    }

    /// Polls until `is_ready` returns true or the budget is used up. Returns whether it was ready. Does not look if it
    /// never polls.
    ///
    /// Yields between two looks, so that a guest on the same processor runs.
    pub(super) fn poll_until(&mut self, is_ready: impl FnMut() -> bool) -> bool {
        if self.never_polls {
            return false;
        }
        let epoch = self.epoch;
        self.poller.poll_until(|| to_ns(epoch.elapsed()), std::thread::yield_now, is_ready)
    }
}

fn to_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
