//! How a worker watches its ring before it sleeps.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use transom_pace::{Pace, Watchers};

/// What one worker knows of its traffic.
pub(super) struct Poller {
    pace: Pace,
    /// What times count from.
    epoch: Instant,
}

impl Poller {
    pub(super) fn new(budget_max: Duration, watchers: &Arc<Watchers>) -> Self {
        Self { pace: Pace::new(ns(budget_max), watchers), epoch: Instant::now() }
    }

    /// The worker was woken.
    pub(super) fn woken(&mut self) {
        self.pace.slept();
        self.pace.worked(self.now_ns());
    }

    /// Watches until `is_ready` says so or the budget is used up; true if a request came.
    ///
    /// Yields between two looks, so that a guest on the same processor runs.
    pub(super) fn watch(&mut self, is_ready: impl FnMut() -> bool) -> bool {
        self.watch_and(std::thread::yield_now, is_ready)
    }

    fn watch_and(&mut self, mut let_others_run: impl FnMut(), mut is_ready: impl FnMut() -> bool) -> bool {
        loop {
            let begun_ns = self.now_ns();
            if !self.pace.watches(begun_ns) {
                return false;
            }
            let_others_run();
            let now_ns = self.now_ns();
            self.pace.yielded(now_ns - begun_ns, now_ns);
            if is_ready() {
                self.pace.worked(now_ns);
                return true;
            }
        }
    }

    fn now_ns(&self) -> u64 {
        ns(self.epoch.elapsed())
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// One that has been woken at once, so that it has a budget.
    fn poller(budget_max: Duration) -> Poller {
        let mut poller = Poller::new(budget_max, &Arc::new(Watchers::new(1)));
        assert!(!poller.watch(|| true), "the first sleep comes at once");
        poller.woken();
        poller
    }

    #[test]
    fn what_comes_while_it_is_watched_for_is_seen_and_what_does_not_ends_the_watch() {
        let mut poller = poller(LONG);
        let mut looks = 0;
        assert!(poller.watch(|| {
            looks += 1;
            looks == 2
        }));
        assert!(!poller.watch(|| false));
    }

    #[test]
    fn a_maximum_of_zero_never_watches() {
        assert!(!poller(Duration::ZERO).watch(|| true));
    }

    #[test]
    fn what_comes_during_a_late_yield_is_not_missed_and_another_watch_has_to_wait() {
        let late = || std::thread::sleep(Duration::from_millis(20));
        let mut poller = poller(LONG);
        assert!(poller.watch_and(late, || true));
        assert!(!poller.watch(|| true), "it rests");
    }
}
