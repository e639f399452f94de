//! How long a thread watches before it sleeps: longer while that pays, not at all while requests are rare.
//!
//! Between two looks it yields, so that those run whom it watches for. Watches in vain and yields that take long are losses, after which
//! it rests. The reasons are in [decision 3](../../../docs/decisions/0003-polling.md).
//!
//! Times are those of a clock that does not go back, in nanoseconds. Nothing here reads one, or blocks.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// No thread watches for longer, whatever it may.
const MAX_NS: u64 = 1_000_000_000;
/// The first budget, and what a halved one may not fall below without being none: below it a wake-up is as good.
const BUDGET_MIN_NS: u64 = 4_000;
/// A yield that takes longer has let others do more than make a request or answer one.
const LATE_NS: u64 = 250_000;

/// A watch that is not in vain saves about so much, a wake.
const SAVES_NS: u64 = 20_000;
/// What may be watched in vain beyond what was saved: a budget that grows from nothing takes two of them at
/// most, and is to be tried twice.
const CREDIT_WATCHES: u64 = 4;

/// No loss counts for more: a process that was stopped has not met others who need the processor.
const LOSS_MAX_NS: u64 = 10_000_000;
/// A thread rests for so many times what it has lost: after the longest rests, one part in a hundred is lost.
const REST_PER_LOSS: RangeInclusive<u64> = 2..=128;
/// The next rest is so many times as long for the same loss: beside a thread that computes, the third is the longest.
const REST_GROWS: u64 = 8;
/// After so many watches that paid the least rest will do: beside threads that compute there are hardly any.
const PAID_MIN: u32 = 16;

/// Those of some threads that watch at this moment.
#[derive(Debug)]
pub struct Watchers {
    count: AtomicUsize,
    max: usize,
}

impl Watchers {
    /// No more than `max` of them at a time: what they watch for needs processors too.
    pub const fn new(max: usize) -> Self {
        Self { count: AtomicUsize::new(0), max }
    }

    fn enter(&self) -> bool {
        let may = self.count.fetch_add(1, Ordering::Relaxed) < self.max;
        if !may {
            self.leave();
        }
        may
    }

    fn leave(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What one thread has seen, and how long it watches therefore.
///
/// It starts without a budget: the first sleep comes at once.
#[derive(Debug)]
pub struct Pace {
    max_ns: u64,
    watchers: Arc<Watchers>,
    budget_ns: u64,
    /// Until when this thread watches, while it does.
    watches_until_ns: Option<u64>,
    /// Since when there has been nothing to do.
    idle_since_ns: Option<u64>,
    /// The thread has slept since then.
    has_slept: bool,
    /// What may be watched in vain.
    credit_ns: u64,
    /// Until when it does not watch.
    rests_until_ns: u64,
    /// Of [`REST_PER_LOSS`], for the next rest unless watching pays before.
    rest_per_loss: u64,
    /// Watches that have paid since the last rest.
    paid: u32,
}

impl Pace {
    /// Of a thread that watches for `max_ns` at most, never where that is 0.
    pub fn new(max_ns: u64, watchers: &Arc<Watchers>) -> Self {
        Self {
            max_ns: max_ns.min(MAX_NS),
            watchers: Arc::clone(watchers),
            budget_ns: 0,
            watches_until_ns: None,
            idle_since_ns: None,
            has_slept: false,
            credit_ns: max_ns.min(MAX_NS) * CREDIT_WATCHES,
            rests_until_ns: 0,
            rest_per_loss: *REST_PER_LOSS.start(),
            paid: 0,
        }
    }

    /// There is nothing to do. Whether to yield and look once more rather than sleep.
    pub fn watches(&mut self, now_ns: u64) -> bool {
        self.idle_since_ns.get_or_insert(now_ns);
        if let Some(until_ns) = self.watches_until_ns {
            if now_ns < until_ns {
                return true;
            }
            self.end();
            self.watched_in_vain(now_ns);
            return false;
        }
        if self.budget_ns == 0 || now_ns < self.rests_until_ns || !self.watchers.enter() {
            return false;
        }
        self.watches_until_ns = Some(now_ns + self.budget_ns);
        true
    }

    /// A yield took `took_ns` and ended at `now_ns`. A late one ends the watching; what came meanwhile is to be looked for all the same.
    pub fn yielded(&mut self, took_ns: u64, now_ns: u64) {
        if took_ns >= LATE_NS {
            self.end();
            self.rest(took_ns, now_ns);
        }
    }

    /// The thread has slept, which may have ended for nothing.
    pub fn slept(&mut self) {
        self.has_slept = true;
    }

    /// There was something to do.
    pub fn worked(&mut self, now_ns: u64) {
        if self.end() {
            self.paid = self.paid.saturating_add(1);
            self.credit_ns = (self.credit_ns + SAVES_NS).min(self.credit_max_ns());
        }
        let (idle_since_ns, has_slept) = (self.idle_since_ns.take(), std::mem::take(&mut self.has_slept));
        let Some(idle_since_ns) = idle_since_ns.filter(|_| has_slept) else { return };
        // Had it watched a little longer, it would not have slept; or watching would have been in vain.
        self.budget_ns = if now_ns.saturating_sub(idle_since_ns) < self.max_ns {
            (self.budget_ns * 2).clamp(BUDGET_MIN_NS.min(self.max_ns), self.max_ns)
        } else if self.budget_ns / 2 < BUDGET_MIN_NS {
            0
        } else {
            self.budget_ns / 2
        };
    }

    fn watched_in_vain(&mut self, now_ns: u64) {
        // The budget rather than the time: what it yielded was of use to others.
        self.credit_ns = self.credit_ns.saturating_sub(self.budget_ns);
        if self.credit_ns == 0 {
            self.credit_ns = self.credit_max_ns();
            self.rest(self.credit_ns, now_ns);
        }
    }

    fn credit_max_ns(&self) -> u64 {
        self.max_ns * CREDIT_WATCHES
    }

    fn rest(&mut self, lost_ns: u64, now_ns: u64) {
        if std::mem::take(&mut self.paid) >= PAID_MIN {
            self.rest_per_loss = *REST_PER_LOSS.start();
        }
        self.rests_until_ns = now_ns + lost_ns.min(LOSS_MAX_NS) * self.rest_per_loss;
        self.rest_per_loss = (self.rest_per_loss * REST_GROWS).min(*REST_PER_LOSS.end());
    }

    /// Tells whether it was watching.
    fn end(&mut self) -> bool {
        let has_watched = self.watches_until_ns.take().is_some();
        if has_watched {
            self.watchers.leave();
        }
        has_watched
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 50_000;

    /// A thread, and the time.
    struct Thread {
        pace: Pace,
        now_ns: u64,
    }

    impl Thread {
        fn new(max_ns: u64, watchers: &Arc<Watchers>) -> Self {
            Self { pace: Pace::new(max_ns, watchers), now_ns: 1 << 40 }
        }

        fn alone(max_ns: u64) -> Self {
            Self::new(max_ns, &Arc::new(Watchers::new(1)))
        }

        fn watches(&mut self) -> bool {
            self.pace.watches(self.now_ns)
        }

        /// Work comes so long after the last one; tells whether the thread slept.
        fn idle(&mut self, ns: u64) -> bool {
            let comes_at_ns = self.now_ns + ns;
            let mut has_slept = false;
            while self.now_ns < comes_at_ns {
                if self.watches() {
                    self.now_ns += 1000;
                    self.pace.yielded(1000, self.now_ns);
                } else {
                    has_slept = true;
                    self.pace.slept();
                    self.now_ns = self.now_ns.max(comes_at_ns);
                }
            }
            self.pace.worked(self.now_ns);
            assert_eq!(self.pace.watchers.count.load(Ordering::Relaxed), 0);
            has_slept
        }
    }

    #[test]
    fn a_budget_that_is_too_short_grows_until_nobody_sleeps() {
        let mut thread = Thread::alone(MAX);
        let sleeps = (0..20).filter(|_| thread.idle(30_000)).count();
        assert_eq!((sleeps, thread.pace.budget_ns), (4, 32_000));
    }

    #[test]
    fn watching_for_what_comes_late_ends_soon() {
        let mut thread = Thread::alone(MAX);
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
        let mut thread = Thread::alone(MAX);
        assert!(!thread.watches());
        (0..5).for_each(|_| thread.pace.slept());
        thread.pace.worked(thread.now_ns + 1);
        assert_eq!(thread.pace.budget_ns, BUDGET_MIN_NS);
        // Neither does one before there was nothing to do.
        thread.pace.slept();
        thread.pace.worked(thread.now_ns + 2);
        assert!(!thread.idle(1000));
        assert_eq!(thread.pace.budget_ns, BUDGET_MIN_NS);
    }

    #[test]
    fn a_limit_of_nothing_never_watches() {
        let mut thread = Thread::alone(0);
        assert!((0..5).all(|_| thread.idle(1000)) && !thread.watches());
    }

    #[test]
    fn no_more_threads_watch_than_may() {
        let watchers = Arc::new(Watchers::new(1));
        let mut threads = [(); 3].map(|()| Thread::new(MAX, &watchers));
        for thread in &mut threads {
            thread.idle(1000);
        }
        let [mut first, mut second, mut third] = threads;
        assert!(first.watches() && !second.watches());
        first.pace.worked(first.now_ns);
        assert!(second.watches() && !third.watches());
        // A thread that ends while it watches.
        drop(second);
        assert!(third.watches());
    }

    #[test]
    fn after_a_late_yield_the_thread_rests_and_longer_unless_watching_has_paid_since_the_last_one() {
        let mut thread = Thread::alone(MAX);
        thread.idle(1000);
        for per_loss in [2, 16, 128, 128] {
            assert!(thread.watches());
            thread.now_ns += LATE_NS;
            thread.pace.yielded(LATE_NS, thread.now_ns);
            assert_eq!(thread.pace.watchers.count.load(Ordering::Relaxed), 0);
            assert_eq!(thread.pace.rests_until_ns, thread.now_ns + LATE_NS * per_loss);
            assert!(!thread.watches(), "it rests");
            thread.now_ns = thread.pace.rests_until_ns;
        }
        for (paid, per_loss) in [(PAID_MIN, 2), (PAID_MIN - 1, 16), (PAID_MIN, 2)] {
            (0..paid).for_each(|_| assert!(!thread.idle(1000)));
            // A process that was stopped for an hour.
            thread.pace.yielded(3_600_000_000_000, thread.now_ns);
            assert_eq!(thread.pace.rests_until_ns, thread.now_ns + LOSS_MAX_NS * per_loss);
            thread.now_ns = thread.pace.rests_until_ns;
        }
    }

    #[test]
    fn a_thread_that_watches_in_vain_again_and_again_rests() {
        let mut thread = Thread::alone(MAX);
        (0..10).for_each(|_| _ = thread.idle(MAX - 1000));
        let begun_ns = thread.now_ns;
        let mut watched_ns = 0;
        while thread.now_ns < begun_ns + 1_000_000_000 {
            // One just within what it may watch, one just beyond.
            for ns in [MAX - 1000, MAX + 1000] {
                if thread.watches() {
                    watched_ns += thread.pace.budget_ns.min(ns);
                }
                thread.idle(ns);
            }
        }
        let parts = 1_000_000_000 / watched_ns;
        assert!((10..1000).contains(&parts), "one part in {parts} is watched");
    }

    #[test]
    fn a_pause_now_and_then_does_not_end_the_watching() {
        let mut thread = Thread::alone(MAX);
        (0..10).for_each(|_| _ = thread.idle(30_000));
        let sleeps = (0..1000).filter(|count| thread.idle(if count % 10 == 0 { 10 * MAX } else { 20_000 })).count();
        assert!(sleeps <= 200, "{sleeps} of 1000");
    }
}
