//! How long a worker watches its ring before it sleeps.
//!
//! Waking a sleeping core costs tens of microseconds, a look at the ring a tenth of one; but a worker that watches in
//! vain takes time from the guest. The budget grows while requests come soon after the last one was served, and shrinks
//! while they do not. Workers of several queues do not all watch at once: what they watch for needs processors too.
//!
//! Between two looks a worker yields. On a busy processor that hands over a whole time slice, many times what waking costs:
//! a worker whose yield comes back late does not watch for a while, which is short for one such yield among many, as on a
//! processor that a hypervisor takes away now and then, and long where there is one after the other.

use std::{
    num::NonZero,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// The smallest budget that is not zero; below it a wake-up is as good.
const BUDGET_MIN: Duration = Duration::from_micros(4);

/// A yield that takes longer has let others do more than make a request: they need the processor.
const LATE: Duration = Duration::from_micros(250);

/// No yield counts for longer: a process that was stopped has not met others who need the processor.
const LATE_MAX: Duration = Duration::from_millis(10);

/// A worker does not watch then for so many times what it took, twice as many the next time.
const REST_PER_LATE: RangeInclusive<u32> = 2..=128;

/// Once so many times what it took has passed, half as many again: all that costs about one part in a hundred.
const CALM_PER_LATE: u32 = 100;

/// The workers of a device that watch at this moment.
pub(super) struct Watchers {
    count: AtomicUsize,
    max: usize,
}

impl Watchers {
    /// One processor is left to the others, where there are several.
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self { count: AtomicUsize::new(0), max: processors.saturating_sub(1).max(1) }
    }

    /// `None` where enough watch.
    fn enter(&self) -> Option<Watching<'_>> {
        let watching = Watching(self);
        (self.count.fetch_add(1, Ordering::Relaxed) < self.max).then_some(watching)
    }
}

struct Watching<'a>(&'a Watchers);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The budget of one worker.
pub(super) struct Poller {
    budget: Duration,
    budget_max: Duration,
    watchers: Arc<Watchers>,
    /// Since when there has been nothing to do, while the worker sleeps.
    idle_since: Option<Instant>,
    rest: Rest,
}

/// What a worker's late yields have made of it.
struct Rest {
    /// Until when it does not watch.
    until: Option<Instant>,
    /// Of [`REST_PER_LATE`].
    per_late: u32,
    /// When that is halved.
    calm_at: Option<Instant>,
}

impl Rest {
    fn new() -> Self {
        Self { until: None, per_late: *REST_PER_LATE.start(), calm_at: None }
    }

    fn late(&mut self, now: Instant, yielded: Duration) {
        let late = yielded.min(LATE_MAX);
        let until = now + late * self.per_late;
        self.until = Some(until);
        self.per_late = (self.per_late * 2).min(*REST_PER_LATE.end());
        self.calm_at = Some(until + late * CALM_PER_LATE);
    }

    fn in_time(&mut self, now: Instant) {
        if self.calm_at.is_some_and(|at| now >= at) {
            self.per_late = (self.per_late / 2).max(*REST_PER_LATE.start());
            self.calm_at = (self.per_late > *REST_PER_LATE.start()).then(|| now + LATE * CALM_PER_LATE);
        }
    }
}

impl Poller {
    pub(super) fn new(budget_max: Duration, watchers: &Arc<Watchers>) -> Self {
        Self { budget: Duration::ZERO, budget_max, watchers: watchers.clone(), idle_since: None, rest: Rest::new() }
    }

    /// Called when the worker was woken: had it watched a little longer, it would not have slept, or watching would have been in
    /// vain.
    pub(super) fn woken(&mut self, now: Instant) {
        let Some(idle_since) = self.idle_since.take() else { return };
        self.budget = if now.duration_since(idle_since) <= self.budget_max {
            (self.budget * 2).clamp(BUDGET_MIN.min(self.budget_max), self.budget_max)
        } else if self.budget / 2 < BUDGET_MIN {
            Duration::ZERO
        } else {
            self.budget / 2
        };
    }

    /// Watches until `is_ready` says so or the budget is used up; true if a request came.
    ///
    /// Yields between two looks, so that a guest on the same core runs.
    pub(super) fn watch(&mut self, is_ready: impl FnMut() -> bool) -> bool {
        self.watch_and(std::thread::yield_now, is_ready)
    }

    fn watch_and(&mut self, mut let_others_run: impl FnMut(), mut is_ready: impl FnMut() -> bool) -> bool {
        self.idle_since = None;
        if self.budget.is_zero() {
            self.idle_since = (!self.budget_max.is_zero()).then(Instant::now);
            return false;
        }
        let begun_at = Instant::now();
        if self.rest.until.is_some_and(|until| begun_at < until) {
            return false;
        }
        let watchers = self.watchers.clone();
        let Some(_watching) = watchers.enter() else {
            self.idle_since = Some(begun_at);
            return false;
        };
        let mut looked_at = begun_at;
        loop {
            if is_ready() {
                return true;
            }
            let_others_run();
            let now = Instant::now();
            let yielded = now.duration_since(looked_at);
            if yielded >= LATE {
                self.rest.late(now, yielded);
                return is_ready();
            }
            self.rest.in_time(now);
            if now.duration_since(begun_at) >= self.budget {
                self.idle_since = Some(begun_at);
                return false;
            }
            looked_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_follows_the_traffic() {
        let max = Duration::from_micros(64);
        let mut poller = Poller::new(max, &Arc::new(Watchers::new()));
        assert!(!poller.watch(|| true), "the first sleep comes at once");
        let mut now = Instant::now();
        for expected_us in [4, 8, 16, 32, 64, 64] {
            poller.idle_since = Some(now);
            now += Duration::from_micros(20);
            poller.woken(now);
            assert_eq!(poller.budget, Duration::from_micros(expected_us));
        }
        assert!(poller.watch(|| true));
        assert!(!poller.watch(|| false));
        assert_eq!(poller.budget, max, "in vain, but the request may come soon after");
        for expected_us in [32, 16, 8, 4, 0, 0] {
            poller.idle_since = Some(now);
            now += Duration::from_millis(1);
            poller.woken(now);
            assert_eq!(poller.budget, Duration::from_micros(expected_us));
        }
    }

    #[test]
    fn a_maximum_of_zero_never_watches() {
        let mut poller = Poller::new(Duration::ZERO, &Arc::new(Watchers::new()));
        assert!(!poller.watch(|| true));
        poller.woken(Instant::now());
        assert!(!poller.watch(|| true));
    }

    #[test]
    fn no_more_watch_at_once_than_may() {
        let watchers = Arc::new(Watchers { count: AtomicUsize::new(0), max: 1 });
        let mut pollers = [(); 2].map(|()| Poller::new(Duration::from_secs(60), &watchers));
        let [first, second] = &mut pollers;
        for poller in [&mut *first, &mut *second] {
            assert!(!poller.watch(|| true));
            poller.woken(Instant::now());
        }
        assert!(first.watch(|| {
            assert!(!second.watch(|| true));
            true
        }));
        assert!(second.watch(|| true));
        assert_eq!(watchers.count.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_yield_that_comes_back_late_ends_the_watching_for_a_while() {
        let late = || std::thread::sleep(LATE);
        let mut poller = Poller::new(Duration::from_secs(60), &Arc::new(Watchers::new()));
        poller.budget = Duration::from_secs(60);
        // 1. What came meanwhile is not missed.
        let mut looks = 0;
        assert!(poller.watch_and(late, || {
            looks += 1;
            looks == 2
        }));
        assert_eq!(looks, 2);
        // 2. It rests for as long as that was expensive, and longer the next time.
        for per_late in [4, 8, 16, 32, 64, 128, 128] {
            let begun = Instant::now();
            poller.rest.until = None;
            assert!(!poller.watch_and(late, || false));
            assert!(poller.rest.until.unwrap() >= begun + LATE * per_late);
        }
        poller.rest.until = Some(Instant::now() + Duration::from_secs(60));
        assert!(!poller.watch(|| true));
        // 3. Then it watches again, and rests are as short as before once that goes well.
        poller.rest.until = Some(Instant::now());
        assert!(poller.watch(|| true));
        let mut now = Instant::now() + LATE_MAX * 2 * *REST_PER_LATE.end() * CALM_PER_LATE;
        for per_late in [64, 32, 16, 8, 4, 2, 2] {
            poller.rest.in_time(now);
            assert_eq!(poller.rest.per_late, per_late);
            now += LATE * CALM_PER_LATE;
        }
        // 4. A process that was stopped for an hour does not rest for hours.
        poller.rest.late(now, Duration::from_secs(3600));
        assert_eq!(poller.rest.until, Some(now + LATE_MAX * 2));
    }
}
