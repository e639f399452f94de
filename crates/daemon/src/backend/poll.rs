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

    /// The worker was woken, which may be for nothing.
    pub(super) fn woken(&mut self) {
        self.pace.slept();
    }

    /// A request was taken off the ring.
    pub(super) fn took(&mut self, at: Instant) {
        self.pace.worked(ns(at.saturating_duration_since(self.epoch)));
    }

    /// Watches until `is_ready` says so or the budget is used up; true if a request came.
    ///
    /// Yields between two looks, so that a guest on the same processor runs.
    pub(super) fn watch(&mut self, is_ready: impl FnMut() -> bool) -> bool {
        let epoch = self.epoch;
        self.watch_by(|| ns(epoch.elapsed()), std::thread::yield_now, is_ready)
    }

    fn watch_by(
        &mut self,
        mut now_ns: impl FnMut() -> u64,
        mut let_others_run: impl FnMut(),
        mut is_ready: impl FnMut() -> bool,
    ) -> bool {
        loop {
            let begun_ns = now_ns();
            let watches = self.pace.watches(begun_ns);
            if is_ready() {
                self.pace.worked(begun_ns);
                return true;
            }
            if !watches {
                return false;
            }
            let_others_run();
            let now_ns = now_ns();
            self.pace.yielded(now_ns - begun_ns, now_ns);
        }
    }
}

fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A worker and its clock.
    struct Worker {
        poller: Poller,
        now_ns: Cell<u64>,
    }

    impl Worker {
        fn new(budget_max: Duration) -> Self {
            Self { poller: Poller::new(budget_max, &Arc::new(Watchers::new(1))), now_ns: Cell::new(0) }
        }

        /// Something comes after so many yields of so many microseconds; tells whether it is seen by watching, and the
        /// yields.
        fn watch(&mut self, comes_after: u32, yield_us: u64) -> (bool, u32) {
            let (yields, now_ns) = (Cell::new(0), &self.now_ns);
            let let_others_run = || {
                yields.set(yields.get() + 1);
                now_ns.set(now_ns.get() + yield_us * 1000);
            };
            let is_seen = self.poller.watch_by(|| now_ns.get(), let_others_run, || yields.get() >= comes_after);
            (is_seen, yields.get())
        }

        /// It sleeps, and is woken by a request so many microseconds later.
        fn sleep(&mut self, us: u64) {
            self.now_ns.set(self.now_ns.get() + us * 1000);
            self.poller.woken();
            self.poller.took(self.poller.epoch + Duration::from_nanos(self.now_ns.get()));
        }
    }

    #[test]
    fn what_comes_soon_is_watched_for_once_a_sleep_was_in_vain() {
        let mut worker = Worker::new(Duration::from_micros(50));
        assert_eq!(worker.watch(1, 1), (false, 0), "the first sleep comes at once");
        worker.sleep(10);
        assert_eq!(worker.watch(2, 1), (true, 2));
        assert_eq!(worker.watch(10, 1), (false, 4), "a small budget");
        worker.sleep(10);
        assert_eq!(worker.watch(8, 1), (true, 8), "a greater one");
    }

    #[test]
    fn what_is_there_is_seen_without_a_yield_and_without_a_budget() {
        assert_eq!(Worker::new(Duration::ZERO).watch(0, 1), (true, 0));
    }

    #[test]
    fn a_maximum_of_zero_never_watches() {
        let mut worker = Worker::new(Duration::ZERO);
        for _ in 0..5 {
            assert_eq!(worker.watch(1, 1), (false, 0));
            worker.sleep(1);
        }
    }

    #[test]
    fn what_came_without_a_kick_begins_a_new_idle_time() {
        let mut worker = Worker::new(Duration::from_micros(50));
        assert_eq!(worker.watch(1, 1), (false, 0));
        // It is seen when the worker arms the ring, and takes long.
        worker.poller.took(worker.poller.epoch);
        worker.now_ns.set(1_000_000);
        assert_eq!(worker.watch(1, 1), (false, 0));
        worker.sleep(10);
        assert_eq!(worker.watch(2, 1), (true, 2), "it came 10 µs after the last one's end");
    }

    #[test]
    fn what_comes_during_a_late_yield_is_not_missed_and_another_watch_has_to_wait() {
        let mut worker = Worker::new(Duration::from_micros(50));
        worker.watch(1, 1);
        worker.sleep(10);
        assert_eq!(worker.watch(1, 5000), (true, 1));
        assert_eq!(worker.watch(1, 1), (false, 0), "it rests");
        worker.sleep(10_000);
    }
}
