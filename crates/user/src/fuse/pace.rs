//! How long a thread watches before it sleeps: longer while that pays, not at all while requests are rare.
//!
//! As the daemon's workers do it: the budget doubles where the thread slept although something came soon, and halves where that
//! took longer than it may watch. Between two looks the thread yields, so that a daemon on the same processor runs; where that
//! takes long, others need the processor, and it does not watch for a while: for a short one after one such yield among many, for
//! a long one where there is one after the other.
//!
//! Times are those of the monotonic clock, in nanoseconds.

use std::{
    ops::RangeInclusive,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The first budget, and what a halved one may not fall below without being none.
const BUDGET_MIN_NS: u64 = 4_000;

/// A yield that takes longer has handed over a time slice.
const LATE_NS: u64 = 250_000;
/// No yield counts for longer: a process that was stopped has not met others who need the processor.
const LATE_MAX_NS: u64 = 10_000_000;
/// A thread does not watch then for so many times what it took, twice as many the next time.
const REST_PER_LATE: RangeInclusive<u64> = 2..=128;
/// Once so many times what it took has passed, half as many again: all that costs about one part in a hundred.
const CALM_PER_LATE: u64 = 100;

pub(super) struct Pace {
    max_ns: u64,
    /// Threads of the mount that may watch at the same time: fewer than there are processors.
    watchers_max: usize,
    budget_ns: u64,
    /// Until when this thread watches, while it does.
    watches_until_ns: Option<u64>,
    /// Since when there has been nothing to do.
    idle_since_ns: Option<u64>,
    /// The thread has slept since then.
    has_slept: bool,
    /// Until when it does not watch.
    rests_until_ns: u64,
    /// Of [`REST_PER_LATE`].
    rest_per_late: u64,
    /// When that is halved.
    calm_at_ns: u64,
}

impl Pace {
    pub(super) fn new(max_ns: u32, watchers_max: usize) -> Self {
        Self {
            max_ns: max_ns.into(),
            watchers_max,
            budget_ns: 0,
            watches_until_ns: None,
            idle_since_ns: None,
            has_slept: false,
            rests_until_ns: 0,
            rest_per_late: *REST_PER_LATE.start(),
            calm_at_ns: 0,
        }
    }

    /// There is nothing to do. Whether to yield and look once more rather than sleep.
    pub(super) fn watches(&mut self, watchers: &AtomicUsize, now_ns: u64) -> bool {
        self.idle_since_ns.get_or_insert(now_ns);
        if let Some(until_ns) = self.watches_until_ns {
            if now_ns < until_ns {
                return true;
            }
            self.end(watchers);
            return false;
        }
        if self.budget_ns == 0 || now_ns < self.rests_until_ns {
            return false;
        }
        if watchers.fetch_add(1, Ordering::Relaxed) >= self.watchers_max {
            watchers.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.watches_until_ns = Some(now_ns + self.budget_ns);
        true
    }

    /// A yield took so long.
    pub(super) fn yielded(&mut self, watchers: &AtomicUsize, took_ns: u64, now_ns: u64) {
        if took_ns >= LATE_NS {
            let late_ns = took_ns.min(LATE_MAX_NS);
            self.end(watchers);
            self.rests_until_ns = now_ns + late_ns * self.rest_per_late;
            self.rest_per_late = (self.rest_per_late * 2).min(*REST_PER_LATE.end());
            self.calm_at_ns = self.rests_until_ns + late_ns * CALM_PER_LATE;
        } else if now_ns >= self.calm_at_ns && self.rest_per_late > *REST_PER_LATE.start() {
            self.rest_per_late /= 2;
            self.calm_at_ns = now_ns + LATE_NS * CALM_PER_LATE;
        }
    }

    /// The thread has slept, which may have ended for nothing.
    pub(super) fn slept(&mut self) {
        self.has_slept = true;
    }

    /// There was something to do.
    pub(super) fn worked(&mut self, watchers: &AtomicUsize, now_ns: u64) {
        self.end(watchers);
        let Some(idle_since_ns) = self.idle_since_ns.take() else { return };
        if !std::mem::take(&mut self.has_slept) {
            return;
        }
        // Had it watched a little longer, it would not have slept; or watching would have been in vain.
        self.budget_ns = if now_ns.saturating_sub(idle_since_ns) < self.max_ns {
            (self.budget_ns * 2).clamp(BUDGET_MIN_NS.min(self.max_ns), self.max_ns)
        } else if self.budget_ns / 2 < BUDGET_MIN_NS {
            0
        } else {
            self.budget_ns / 2
        };
    }

    fn end(&mut self, watchers: &AtomicUsize) {
        if self.watches_until_ns.take().is_some() {
            watchers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 50_000;

    /// A thread, and the time.
    struct Thread<'w> {
        pace: Pace,
        watchers: &'w AtomicUsize,
        now_ns: u64,
    }

    impl<'w> Thread<'w> {
        fn new(max_ns: u64, watchers: &'w AtomicUsize) -> Self {
            Self { pace: Pace::new(max_ns as u32, 1), watchers, now_ns: 1 << 40 }
        }

        fn watches(&mut self) -> bool {
            self.pace.watches(self.watchers, self.now_ns)
        }

        /// Work comes so long after the last one; tells whether the thread slept.
        fn idle(&mut self, ns: u64) -> bool {
            let comes_at_ns = self.now_ns + ns;
            let mut has_slept = false;
            while self.now_ns < comes_at_ns {
                if self.watches() {
                    self.now_ns += 1000;
                    self.pace.yielded(self.watchers, 1000, self.now_ns);
                } else {
                    has_slept = true;
                    self.pace.slept();
                    self.now_ns = self.now_ns.max(comes_at_ns);
                }
            }
            self.pace.worked(self.watchers, self.now_ns);
            assert_eq!(self.watchers.load(Ordering::Relaxed), 0);
            has_slept
        }
    }

    #[test]
    fn a_budget_that_is_too_short_grows_until_nobody_sleeps() {
        let watchers = AtomicUsize::new(0);
        let mut thread = Thread::new(MAX, &watchers);
        let sleeps = (0..20).filter(|_| thread.idle(30_000)).count();
        assert_eq!((sleeps, thread.pace.budget_ns), (4, 32_000));
    }

    #[test]
    fn watching_for_what_comes_late_ends_soon() {
        let watchers = AtomicUsize::new(0);
        let mut thread = Thread::new(MAX, &watchers);
        for _ in 0..20 {
            thread.idle(45_000);
        }
        assert_eq!(thread.pace.budget_ns, MAX);
        for _ in 0..4 {
            assert!(thread.idle(2 * MAX));
        }
        assert_eq!(thread.pace.budget_ns, 0);
    }

    #[test]
    fn a_sleep_that_ends_for_nothing_decides_nothing() {
        let watchers = AtomicUsize::new(0);
        let mut thread = Thread::new(MAX, &watchers);
        assert!(!thread.watches());
        (0..5).for_each(|_| thread.pace.slept());
        thread.pace.worked(&watchers, thread.now_ns + 1);
        assert_eq!(thread.pace.budget_ns, BUDGET_MIN_NS);
    }

    #[test]
    fn a_limit_of_nothing_never_watches() {
        let watchers = AtomicUsize::new(0);
        let mut thread = Thread::new(0, &watchers);
        assert!((0..5).all(|_| thread.idle(1000)) && !thread.watches());
    }

    #[test]
    fn no_more_threads_watch_than_may() {
        let watchers = AtomicUsize::new(0);
        let mut threads = [(); 2].map(|()| Thread::new(MAX, &watchers));
        for thread in &mut threads {
            thread.idle(1000);
        }
        let [first, second] = &mut threads;
        assert!(first.watches() && !second.watches());
        first.pace.worked(&watchers, first.now_ns);
        assert!(second.watches());
    }

    #[test]
    fn after_a_late_yield_the_thread_rests_longer_each_time_and_shorter_when_it_has_been_calm() {
        let watchers = AtomicUsize::new(0);
        let mut thread = Thread::new(MAX, &watchers);
        thread.idle(1000);
        for per_late in [2, 4, 8, 16, 32, 64, 128, 128] {
            assert!(thread.watches());
            thread.now_ns += LATE_NS;
            thread.pace.yielded(&watchers, LATE_NS, thread.now_ns);
            assert_eq!(watchers.load(Ordering::Relaxed), 0);
            assert_eq!(thread.pace.rests_until_ns, thread.now_ns + LATE_NS * per_late);
            assert!(!thread.watches(), "it rests");
            thread.now_ns = thread.pace.rests_until_ns;
        }
        for per_late in [64, 32, 16, 8, 4, 2, 2] {
            thread.now_ns += LATE_NS * CALM_PER_LATE;
            thread.pace.yielded(&watchers, 1000, thread.now_ns);
            assert_eq!(thread.pace.rest_per_late, per_late);
        }
        // A process that was stopped for an hour.
        thread.pace.yielded(&watchers, 3_600_000_000_000, thread.now_ns);
        assert_eq!(thread.pace.rests_until_ns, thread.now_ns + LATE_MAX_NS * 2);
    }
}
