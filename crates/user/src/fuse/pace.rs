//! How long a thread watches before it sleeps: longer while that pays, not at all while requests are rare.
//!
//! As the daemon's workers do it: the budget doubles where the thread slept although something came soon, and halves where that
//! took longer than it may watch. Between two looks the thread yields, so that a daemon on the same processor runs; where that takes
//! long, others need the processor, and it does not watch for a while: for a short one after one such yield among many, for a
//! long one where there is one after the other.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::now_ns;

/// The first budget, and what a halved one may not fall below without being none.
const BUDGET_MIN_NS: u64 = 4_000;

/// A yield that takes longer has handed over a time slice.
const LATE_NS: u64 = 250_000;
/// A thread does not watch then for so many times what it took, twice as many the next time: on a busy machine all that costs
/// less than one part in a hundred.
const REST_PER_LATE: std::ops::RangeInclusive<u64> = 2..=128;
/// So many watches that end in time halve that again.
const GOOD_WATCHES: u32 = 16;

pub(super) struct Pace {
    max_ns: u64,
    /// Threads of the mount that may watch at the same time: fewer than there are processors.
    watchers_max: usize,
    budget_ns: u64,
    /// While this thread watches.
    watch: Option<Watch>,
    /// Since when there has been nothing to do.
    idle_since_ns: Option<u64>,
    /// Until when it does not.
    rests_until_ns: u64,
    /// Of [`REST_PER_LATE`].
    rest_per_late: u64,
    /// Watches in time since that was changed.
    good: u32,
}

struct Watch {
    until_ns: u64,
    looked_ns: u64,
}

impl Pace {
    pub(super) fn new(max_ns: u32, watchers_max: usize) -> Self {
        let rest_per_late = *REST_PER_LATE.start();
        Self {
            max_ns: max_ns.into(),
            watchers_max,
            budget_ns: 0,
            watch: None,
            idle_since_ns: None,
            rests_until_ns: 0,
            rest_per_late,
            good: 0,
        }
    }

    /// Whether to yield and look once more rather than sleep.
    pub(super) fn watches(&mut self, watchers: &AtomicUsize) -> bool {
        if self.max_ns == 0 {
            return false;
        }
        let now_ns = now_ns();
        self.idle_since_ns.get_or_insert(now_ns);
        if self.budget_ns == 0 {
            return false;
        }
        let Some(watch) = &mut self.watch else {
            if now_ns < self.rests_until_ns {
                return false;
            }
            if watchers.fetch_add(1, Ordering::Relaxed) >= self.watchers_max {
                watchers.fetch_sub(1, Ordering::Relaxed);
                return false;
            }
            self.watch = Some(Watch { until_ns: now_ns + self.budget_ns, looked_ns: now_ns });
            return true;
        };
        if now_ns - watch.looked_ns < LATE_NS && now_ns < watch.until_ns {
            watch.looked_ns = now_ns;
            return true;
        }
        self.end(watchers, now_ns);
        false
    }

    /// There was something to do.
    pub(super) fn worked(&mut self, watchers: &AtomicUsize) {
        self.idle_since_ns = None;
        if self.watch.is_some() && !self.end(watchers, now_ns()) {
            self.good += 1;
            if self.good >= GOOD_WATCHES {
                self.rest_per_late = (self.rest_per_late / 2).max(*REST_PER_LATE.start());
                self.good = 0;
            }
        }
    }

    /// The thread has slept: had it watched a little longer, it would not have, or watching would have been in vain.
    pub(super) fn slept(&mut self) {
        let Some(idle_since_ns) = self.idle_since_ns else { return };
        self.budget_ns = if now_ns() - idle_since_ns < self.max_ns {
            (self.budget_ns * 2).clamp(BUDGET_MIN_NS.min(self.max_ns), self.max_ns)
        } else if self.budget_ns / 2 < BUDGET_MIN_NS {
            0
        } else {
            self.budget_ns / 2
        };
    }

    /// Tells whether the last yield came back late.
    fn end(&mut self, watchers: &AtomicUsize, now_ns: u64) -> bool {
        let Some(watch) = self.watch.take() else { return false };
        watchers.fetch_sub(1, Ordering::Relaxed);
        let yielded_ns = now_ns - watch.looked_ns;
        let is_late = yielded_ns >= LATE_NS;
        if is_late {
            self.rests_until_ns = now_ns + yielded_ns * self.rest_per_late;
            self.rest_per_late = (self.rest_per_late * 2).min(*REST_PER_LATE.end());
            self.good = 0;
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 50_000_000;

    /// Nothing to do, and a sleep after which something comes so long after the last work.
    fn sleep(pace: &mut Pace, watchers: &AtomicUsize, idle_ns: u64) {
        while pace.watches(watchers) {
            let watch = pace.watch.as_mut().unwrap();
            (watch.until_ns, watch.looked_ns) = (0, now_ns());
        }
        pace.idle_since_ns = pace.idle_since_ns.map(|_| now_ns() - idle_ns);
        pace.slept();
        pace.worked(watchers);
    }

    #[test]
    fn a_thread_that_is_woken_soon_watches_the_next_time_and_in_the_end_for_long_enough() {
        let (mut pace, watchers) = (Pace::new(MAX, 1), AtomicUsize::new(0));
        assert!(!pace.watches(&watchers));
        sleep(&mut pace, &watchers, 0);
        assert!(pace.watches(&watchers));
        assert_eq!(watchers.load(Ordering::Relaxed), 1);
        pace.worked(&watchers);
        assert_eq!(watchers.load(Ordering::Relaxed), 0);
        (0..20).for_each(|_| sleep(&mut pace, &watchers, 0));
        assert_eq!(pace.budget_ns, u64::from(MAX));
    }

    #[test]
    fn watching_for_what_comes_late_ends_soon() {
        let (mut pace, watchers) = (Pace::new(MAX, 1), AtomicUsize::new(0));
        (0..20).for_each(|_| sleep(&mut pace, &watchers, 0));
        (0..20).for_each(|_| sleep(&mut pace, &watchers, u64::from(MAX)));
        assert_eq!((pace.budget_ns, watchers.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_limit_of_nothing_never_watches() {
        let (mut pace, watchers) = (Pace::new(0, 1), AtomicUsize::new(0));
        (0..3).for_each(|_| sleep(&mut pace, &watchers, 0));
        assert!(!pace.watches(&watchers) && pace.budget_ns == 0);
    }

    #[test]
    fn no_more_threads_watch_than_may() {
        let watchers = AtomicUsize::new(0);
        let (mut first, mut second) = (Pace::new(MAX, 1), Pace::new(MAX, 1));
        sleep(&mut first, &watchers, 0);
        sleep(&mut second, &watchers, 0);
        assert!(first.watches(&watchers) && !second.watches(&watchers));
        first.worked(&watchers);
        assert!(second.watches(&watchers));
    }

    #[test]
    fn a_yield_that_comes_back_late_ends_the_watching_for_a_while_and_longer_the_next_time() {
        let (mut pace, watchers) = (Pace::new(MAX, 1), AtomicUsize::new(0));
        let late = |pace: &mut Pace| pace.watch.as_mut().unwrap().looked_ns -= LATE_NS;
        for (ends, per_late) in [
            (&(|pace: &mut Pace| assert!(!pace.watches(&watchers))) as &dyn Fn(&mut Pace), 2),
            (&|pace| pace.worked(&watchers), 4),
            (&|pace| pace.worked(&watchers), 8),
        ] {
            sleep(&mut pace, &watchers, 0);
            assert!(pace.watches(&watchers));
            let begun_ns = now_ns();
            late(&mut pace);
            ends(&mut pace);
            assert!(pace.rests_until_ns >= begun_ns + LATE_NS * per_late);
            assert_eq!(watchers.load(Ordering::Relaxed), 0);
            pace.rests_until_ns = u64::MAX;
            assert!(!pace.watches(&watchers), "it rests");
            pace.rests_until_ns = 0;
        }
        for per_late in [16, 8, 4, 2, 2] {
            assert_eq!(pace.rest_per_late, per_late);
            for _ in 0..GOOD_WATCHES {
                assert!(pace.watches(&watchers));
                pace.watch.as_mut().unwrap().looked_ns = now_ns();
                pace.worked(&watchers);
            }
        }
    }
}
