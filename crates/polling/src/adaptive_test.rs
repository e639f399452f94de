//! [`AdaptivePoller`] against a clock that the tests move.

use core::cell::Cell;

use super::*;

const MAX_NS: u64 = 50_000;

/// A thread and its clock.
struct Thread {
    poller: AdaptivePoller,
    now_ns: u64,
}

impl Thread {
    fn new(poll_max_ns: u64, limit: &Arc<PollerLimit>) -> Self {
        Self { poller: AdaptivePoller::new(poll_max_ns, limit), now_ns: 1 << 40 }
    }

    fn alone(poll_max_ns: u64) -> Self {
        Self::new(poll_max_ns, &Arc::new(PollerLimit::new(1)))
    }

    fn should_poll(&mut self) -> bool {
        self.poller.should_poll(self.now_ns)
    }

    /// Waits for work that comes after `ns`. Returns whether the thread slept.
    fn idle(&mut self, ns: u64) -> bool {
        let work_at_ns = self.now_ns + ns;
        let mut has_slept = false;
        while self.now_ns < work_at_ns {
            if self.should_poll() {
                self.now_ns += 1000;
                self.poller.record_yield(1000, self.now_ns);
            } else {
                has_slept = true;
                self.poller.record_sleep();
                self.now_ns = self.now_ns.max(work_at_ns);
            }
        }
        self.poller.record_work(self.now_ns);
        assert_eq!(self.poller.limit.polling(), 0);
        has_slept
    }

    /// Polls while each yield takes `yield_ns` and work comes after `ready_after` of them. Returns whether the poll
    /// found the work, and the number of yields.
    fn poll_until(&mut self, ready_after: u32, yield_ns: u64) -> (bool, u32) {
        let (yields, now_ns) = (Cell::new(0), Cell::new(self.now_ns));
        let yield_now = || {
            yields.set(yields.get() + 1);
            now_ns.set(now_ns.get() + yield_ns);
        };
        let is_found = self.poller.poll_until(|| now_ns.get(), yield_now, || yields.get() >= ready_after);
        self.now_ns = now_ns.get();
        (is_found, yields.get())
    }

    /// Sleeps until work comes after `ns`.
    fn sleep(&mut self, ns: u64) {
        self.now_ns += ns;
        self.poller.record_sleep();
        self.poller.record_work(self.now_ns);
    }
}

#[test]
fn a_budget_that_is_too_short_grows_until_the_thread_no_longer_sleeps() {
    let mut thread = Thread::alone(MAX_NS);
    let sleeps = (0..20).filter(|_| thread.idle(30_000)).count();
    assert_eq!((sleeps, thread.poller.budget_ns), (4, 32_000));
}

#[test]
fn polling_for_work_that_comes_late_ends_soon() {
    let mut thread = Thread::alone(MAX_NS);
    for _ in 0..20 {
        thread.idle(45_000);
    }
    assert_eq!(thread.poller.budget_ns, MAX_NS);
    for _ in 0..4 {
        assert!(thread.idle(2 * MAX_NS));
    }
    assert_eq!(thread.poller.budget_ns, 0);
}

#[test]
fn a_wake_up_without_work_does_not_change_the_budget() {
    let mut thread = Thread::alone(MAX_NS);
    assert!(!thread.should_poll());
    (0..5).for_each(|_| thread.poller.record_sleep());
    thread.poller.record_work(thread.now_ns + 1);
    assert_eq!(thread.poller.budget_ns, BUDGET_MIN_NS);
    // Neither does a sleep that was recorded before the thread was idle.
    thread.poller.record_sleep();
    thread.poller.record_work(thread.now_ns + 2);
    assert!(!thread.idle(1000));
    assert_eq!(thread.poller.budget_ns, BUDGET_MIN_NS);
}

#[test]
fn a_maximum_of_zero_never_polls() {
    let mut thread = Thread::alone(0);
    assert!((0..5).all(|_| thread.idle(1000)) && !thread.should_poll());
}

#[test]
fn no_more_threads_poll_than_the_limit_allows() {
    let limit = Arc::new(PollerLimit::new(1));
    let mut threads = [(); 3].map(|()| Thread::new(MAX_NS, &limit));
    for thread in &mut threads {
        thread.idle(1000);
    }
    let [mut first, mut second, mut third] = threads;
    assert!(first.should_poll() && !second.should_poll());
    first.poller.record_work(first.now_ns);
    assert!(second.should_poll() && !third.should_poll());
    // A thread that ends while it polls frees its place.
    drop(second);
    assert!(third.should_poll());
}

#[test]
fn a_late_yield_backs_off_and_longer_each_time_unless_polls_have_succeeded() {
    let mut thread = Thread::alone(MAX_NS);
    thread.idle(1000);
    for per_loss in [2, 16, 128, 128] {
        assert!(thread.should_poll());
        thread.now_ns += LATE_YIELD_NS;
        thread.poller.record_yield(LATE_YIELD_NS, thread.now_ns);
        assert_eq!(thread.poller.limit.polling(), 0);
        assert_eq!(thread.poller.backoff_until_ns, thread.now_ns + LATE_YIELD_NS * per_loss);
        assert!(!thread.should_poll(), "it backs off");
        thread.now_ns = thread.poller.backoff_until_ns;
    }
    for (hits, per_loss) in [(HITS_FOR_RESET, 2), (HITS_FOR_RESET - 1, 16), (HITS_FOR_RESET, 2)] {
        (0..hits).for_each(|_| assert!(!thread.idle(1000)));
        // A process that was stopped for an hour.
        thread.poller.record_yield(3_600_000_000_000, thread.now_ns);
        assert_eq!(thread.poller.backoff_until_ns, thread.now_ns + LOSS_MAX_NS * per_loss);
        thread.now_ns = thread.poller.backoff_until_ns;
    }
}

#[test]
fn a_thread_whose_polls_keep_expiring_backs_off() {
    let mut thread = Thread::alone(MAX_NS);
    (0..10).for_each(|_| _ = thread.idle(MAX_NS - 1000));
    let begin_ns = thread.now_ns;
    let mut polled_ns = 0;
    while thread.now_ns < begin_ns + 1_000_000_000 {
        // One just within the longest poll, one just beyond it.
        for ns in [MAX_NS - 1000, MAX_NS + 1000] {
            if thread.should_poll() {
                polled_ns += thread.poller.budget_ns.min(ns);
            }
            thread.idle(ns);
        }
    }
    let parts = 1_000_000_000 / polled_ns;
    assert!((10..1000).contains(&parts), "one part in {parts} is spent polling");
}

#[test]
fn an_occasional_pause_does_not_end_polling() {
    let mut thread = Thread::alone(MAX_NS);
    (0..10).for_each(|_| _ = thread.idle(30_000));
    let sleeps = (0..1000).filter(|count| thread.idle(if count % 10 == 0 { 10 * MAX_NS } else { 20_000 })).count();
    assert!(sleeps <= 200, "{sleeps} of 1000");
}

#[test]
fn work_that_comes_soon_is_polled_for_after_a_sleep_that_was_not_worth_it() {
    let mut thread = Thread::alone(MAX_NS);
    assert_eq!(thread.poll_until(1, 1000), (false, 0), "the first wait sleeps at once");
    thread.sleep(10_000);
    assert_eq!(thread.poll_until(2, 1000), (true, 2));
    assert_eq!(thread.poll_until(10, 1000), (false, 4), "a small budget");
    thread.sleep(10_000);
    assert_eq!(thread.poll_until(8, 1000), (true, 8), "a larger one");
}

#[test]
fn work_that_is_there_is_found_without_a_yield_and_without_a_budget() {
    assert_eq!(Thread::alone(0).poll_until(0, 1000), (true, 0));
}

#[test]
fn work_that_came_without_a_wake_up_begins_a_new_idle_time() {
    let mut thread = Thread::alone(MAX_NS);
    assert_eq!(thread.poll_until(1, 1000), (false, 0));
    // The worker finds it when it enables notifications, and takes long to serve it.
    thread.poller.record_work(thread.now_ns);
    thread.now_ns += 1_000_000;
    assert_eq!(thread.poll_until(1, 1000), (false, 0));
    thread.sleep(10_000);
    assert_eq!(thread.poll_until(2, 1000), (true, 2), "it came 10 µs after the last request was served");
}

#[test]
fn work_that_comes_during_a_late_yield_is_found_and_the_next_wait_sleeps() {
    let mut thread = Thread::alone(MAX_NS);
    thread.poll_until(1, 1000);
    thread.sleep(10_000);
    assert_eq!(thread.poll_until(1, 5_000_000), (true, 1));
    assert_eq!(thread.poll_until(1, 1000), (false, 0), "it backs off");
}
