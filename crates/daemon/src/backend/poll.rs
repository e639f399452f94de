//! How long a worker watches its ring before it sleeps.
//!
//! Waking a sleeping core costs tens of microseconds, a look at the ring a tenth of one; but a worker that watches in
//! vain takes time from the guest. The budget grows while requests come soon after the last one was served, and shrinks
//! while they do not.

use std::time::{Duration, Instant};

/// The smallest budget that is not zero; below it a wake-up is as good.
const BUDGET_MIN: Duration = Duration::from_micros(4);

/// The budget of one worker.
pub(super) struct Poller {
    budget: Duration,
    budget_max: Duration,
    slept_at: Option<Instant>,
}

impl Poller {
    pub(super) fn new(budget_max: Duration) -> Self {
        Self { budget: Duration::ZERO, budget_max, slept_at: None }
    }

    /// Called when the worker was woken: had it watched a little longer, it would not have slept.
    pub(super) fn woken(&mut self, now: Instant) {
        let Some(slept_at) = self.slept_at.take() else { return };
        if now.duration_since(slept_at) <= self.budget_max {
            self.budget = (self.budget * 2).clamp(BUDGET_MIN.min(self.budget_max), self.budget_max);
        }
    }

    /// Watches until `is_ready` says so or the budget is used up; true if a request came.
    ///
    /// Yields between two looks, so that a guest on the same core runs.
    pub(super) fn watch(&mut self, mut is_ready: impl FnMut() -> bool) -> bool {
        if self.budget.is_zero() {
            self.slept_at = (!self.budget_max.is_zero()).then(Instant::now);
            return false;
        }
        let begun_at = Instant::now();
        loop {
            if is_ready() {
                return true;
            }
            std::thread::yield_now();
            let now = Instant::now();
            if now.duration_since(begun_at) >= self.budget {
                self.budget = if self.budget > BUDGET_MIN { self.budget / 2 } else { Duration::ZERO };
                self.slept_at = Some(now);
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_follows_the_traffic() {
        let max = Duration::from_micros(64);
        let mut poller = Poller::new(max);
        assert!(!poller.watch(|| true), "the first sleep comes at once");
        let mut now = Instant::now();
        for expected_us in [4, 8, 16, 32, 64, 64] {
            poller.slept_at = Some(now);
            now += Duration::from_micros(20);
            poller.woken(now);
            assert_eq!(poller.budget, Duration::from_micros(expected_us));
        }
        assert!(poller.watch(|| true));
        assert!(!poller.watch(|| false));
        assert_eq!(poller.budget, Duration::from_micros(32));
        poller.slept_at = Some(now);
        poller.woken(now + Duration::from_millis(1));
        assert_eq!(poller.budget, Duration::from_micros(32), "a request that came late earns nothing");
    }

    #[test]
    fn a_maximum_of_zero_never_watches() {
        let mut poller = Poller::new(Duration::ZERO);
        assert!(!poller.watch(|| true));
        poller.woken(Instant::now());
        assert!(!poller.watch(|| true));
    }
}
