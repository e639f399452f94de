//! How long a thread watches before it sleeps: longer while that pays, not at all while requests are rare.
//!
//! As the daemon's workers do it: the budget doubles when something came soon after the thread fell asleep, and halves when
//! it watched in vain. Between two looks it yields, so that a daemon on the same processor runs.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::platform::now_ns;

/// The first budget, and what a halved one may not fall below without being none.
const BUDGET_MIN_NS: u64 = 4_000;

pub(super) struct Pace {
    max_ns: u64,
    /// Threads of the mount that may watch at the same time: fewer than there are processors.
    watchers_max: usize,
    budget_ns: u64,
    /// Until when this thread watches, while it does.
    until_ns: Option<u64>,
}

impl Pace {
    pub(super) fn new(max_ns: u32, watchers_max: usize) -> Self {
        Self { max_ns: max_ns.into(), watchers_max, budget_ns: 0, until_ns: None }
    }

    /// Whether to look once more rather than sleep.
    pub(super) fn watches(&mut self, watchers: &AtomicUsize) -> bool {
        match self.until_ns {
            None if self.budget_ns == 0 => false,
            None => {
                if watchers.fetch_add(1, Ordering::Relaxed) >= self.watchers_max {
                    watchers.fetch_sub(1, Ordering::Relaxed);
                    return false;
                }
                self.until_ns = Some(now_ns() + self.budget_ns);
                true
            }
            Some(until_ns) if now_ns() < until_ns => true,
            Some(_) => {
                self.end(watchers);
                self.budget_ns = if self.budget_ns / 2 < BUDGET_MIN_NS { 0 } else { self.budget_ns / 2 };
                false
            }
        }
    }

    /// There was something to do.
    pub(super) fn worked(&mut self, watchers: &AtomicUsize) {
        self.end(watchers);
    }

    /// The thread has slept for so long.
    pub(super) fn slept(&mut self, ns: u64) {
        if ns < self.max_ns {
            self.budget_ns = (self.budget_ns * 2).clamp(BUDGET_MIN_NS.min(self.max_ns), self.max_ns);
        }
    }

    fn end(&mut self, watchers: &AtomicUsize) {
        if self.until_ns.take().is_some() {
            watchers.fetch_sub(1, Ordering::Relaxed);
        }
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
                pace.until_ns = Some(0);
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
}
