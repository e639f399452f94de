//! How long a thread watches before it sleeps: longer while that pays, not at all while requests are rare.
//!
//! As the daemon's workers do it: the budget doubles when something came soon after the thread fell asleep, and halves when
//! it watched in vain. Between two looks the thread yields, so that a daemon on the same processor runs; where that takes
//! long, others need the processor, and it does not watch for a while.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::now_ns;

/// The first budget, and what a halved one may not fall below without being none.
const BUDGET_MIN_NS: u64 = 4_000;

/// A yield that takes longer has handed over a time slice.
const LATE_NS: u64 = 250_000;
/// A thread does not watch then for so many times what it took: on a busy machine all that costs one part in a hundred.
const REST_PER_LATE: u64 = 100;

pub(super) struct Pace {
    max_ns: u64,
    /// Threads of the mount that may watch at the same time: fewer than there are processors.
    watchers_max: usize,
    budget_ns: u64,
    /// While this thread watches.
    watch: Option<Watch>,
    /// Until when it does not.
    rests_until_ns: u64,
}

struct Watch {
    until_ns: u64,
    looked_ns: u64,
}

impl Pace {
    pub(super) fn new(max_ns: u32, watchers_max: usize) -> Self {
        Self { max_ns: max_ns.into(), watchers_max, budget_ns: 0, watch: None, rests_until_ns: 0 }
    }

    /// Whether to yield and look once more rather than sleep.
    pub(super) fn watches(&mut self, watchers: &AtomicUsize) -> bool {
        if self.budget_ns == 0 {
            return false;
        }
        let now_ns = now_ns();
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
        if !self.end(watchers, now_ns) {
            self.budget_ns = if self.budget_ns / 2 < BUDGET_MIN_NS { 0 } else { self.budget_ns / 2 };
        }
        false
    }

    /// There was something to do.
    pub(super) fn worked(&mut self, watchers: &AtomicUsize) {
        if self.watch.is_some() {
            self.end(watchers, now_ns());
        }
    }

    /// The thread has slept for so long.
    pub(super) fn slept(&mut self, ns: u64) {
        if ns < self.max_ns {
            self.budget_ns = (self.budget_ns * 2).clamp(BUDGET_MIN_NS.min(self.max_ns), self.max_ns);
        }
    }

    /// Tells whether the last yield came back late.
    fn end(&mut self, watchers: &AtomicUsize, now_ns: u64) -> bool {
        let Some(watch) = self.watch.take() else { return false };
        watchers.fetch_sub(1, Ordering::Relaxed);
        let yielded_ns = now_ns - watch.looked_ns;
        let is_late = yielded_ns >= LATE_NS;
        if is_late {
            self.rests_until_ns = now_ns + yielded_ns * REST_PER_LATE;
        }
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u32 = 50_000;

    #[test]
    fn a_thread_that_is_woken_soon_watches_the_next_time() {
        let (mut pace, watchers) = (Pace::new(MAX, 1), AtomicUsize::new(0));
        assert!(!pace.watches(&watchers));
        pace.slept(1000);
        assert!(pace.watches(&watchers));
        assert_eq!(watchers.load(Ordering::Relaxed), 1);
        pace.worked(&watchers);
        assert_eq!(watchers.load(Ordering::Relaxed), 0);
        (0..20).for_each(|_| pace.slept(1000));
        assert_eq!(pace.budget_ns, u64::from(MAX));
    }

    #[test]
    fn watching_in_vain_ends_soon() {
        let (mut pace, watchers) = (Pace::new(MAX, 1), AtomicUsize::new(0));
        (0..20).for_each(|_| pace.slept(1000));
        for _ in 0..10 {
            while pace.watches(&watchers) {
                pace.watch.as_mut().unwrap().until_ns = 0;
            }
        }
        assert_eq!((pace.budget_ns, watchers.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_long_sleep_gives_no_budget_nor_does_a_limit_of_nothing() {
        let (mut pace, mut never) = (Pace::new(MAX, 1), Pace::new(0, 1));
        pace.slept(u64::from(MAX) + 1);
        never.slept(0);
        assert_eq!((pace.budget_ns, never.budget_ns), (0, 0));
    }

    #[test]
    fn no_more_threads_watch_than_may() {
        let watchers = AtomicUsize::new(0);
        let (mut first, mut second) = (Pace::new(MAX, 1), Pace::new(MAX, 1));
        first.slept(0);
        second.slept(0);
        assert!(first.watches(&watchers) && !second.watches(&watchers));
        first.worked(&watchers);
        assert!(second.watches(&watchers));
    }
    #[test]
    fn a_yield_that_comes_back_late_ends_the_watching_for_a_while() {
        let (mut pace, watchers) = (Pace::new(MAX, 1), AtomicUsize::new(0));
        let late = |pace: &mut Pace| pace.watch.as_mut().unwrap().looked_ns -= LATE_NS;
        for ends in [
            |pace: &mut Pace, watchers: &AtomicUsize| assert!(!pace.watches(watchers)),
            |pace: &mut Pace, watchers: &AtomicUsize| pace.worked(watchers),
        ] {
            pace.slept(1000);
            assert!(pace.watches(&watchers));
            let begun_ns = now_ns();
            late(&mut pace);
            ends(&mut pace, &watchers);
            assert!(pace.rests_until_ns >= begun_ns + LATE_NS * REST_PER_LATE);
            assert!(!pace.watches(&watchers), "it rests");
            assert_eq!(watchers.load(Ordering::Relaxed), 0);
            pace.rests_until_ns = 0;
        }
        assert!(pace.watches(&watchers));
    }
}
