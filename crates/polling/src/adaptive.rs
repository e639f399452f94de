//! [`AdaptivePoller`]: polls longer while that pays, and backs off while it does not.

use alloc::sync::Arc;
use core::ops::RangeInclusive;

use crate::PollerLimit;

/// Upper bound of the longest poll, whatever the caller asks for.
const POLL_MAX_NS: u64 = 1_000_000_000;
/// The first budget. Half of it counts as no budget: sleeping and being woken is as cheap.
const BUDGET_MIN_NS: u64 = 4_000;
/// A yield that takes longer has run something other than the thread that makes or answers requests.
const LATE_YIELD_NS: u64 = 250_000;

/// What a successful poll saves: one wake-up.
const SAVED_PER_HIT_NS: u64 = 20_000;
/// The credit for polls that expire, in longest polls. A budget that grows from nothing needs two, and should get a
/// second try.
const CREDIT_POLLS: u64 = 4;

/// A single loss counts for at most this much. A process that was stopped for an hour did not compete for the
/// processor.
const LOSS_MAX_NS: u64 = 10_000_000;
/// A backoff lasts this many times as long as the time that was lost. With the largest factor, 1 % of the time is lost.
const BACKOFF_PER_LOSS: RangeInclusive<u64> = 2..=128;
/// How much the factor grows from one backoff to the next: next to a thread that computes, the third is the longest.
const BACKOFF_GROWTH: u64 = 8;
/// After this many successful polls the factor starts over. Next to threads that compute hardly any poll succeeds.
const HITS_FOR_RESET: u32 = 16;

/// Decides, for one thread, whether to poll or to sleep.
///
/// The budget starts at zero, so the first wait sleeps at once. It doubles when work arrived soon after the thread went
/// to sleep, and halves when work took longer. Between two looks the caller yields. Polls that expire and yields that
/// take long are losses, after which the poller backs off.
///
/// All times are in nanoseconds of one monotonic clock.
#[derive(Debug)]
pub struct AdaptivePoller {
    poll_max_ns: u64,
    limit: Arc<PollerLimit>,
    budget_ns: u64,
    /// The end of the current poll, if the thread is polling.
    deadline_ns: Option<u64>,
    /// Since when there has been nothing to do.
    idle_since_ns: Option<u64>,
    /// Whether the thread has slept since then.
    has_slept: bool,
    /// How much more time may be spent on polls that expire before the poller backs off.
    credit_ns: u64,
    /// End of the current backoff.
    backoff_until_ns: u64,
    /// Factor of the next backoff, within [`BACKOFF_PER_LOSS`].
    backoff_per_loss: u64,
    /// Successful polls since the last backoff.
    hits: u32,
}

impl AdaptivePoller {
    /// Creates a poller that polls for at most `poll_max_ns` at a time; never if that is 0.
    ///
    /// `limit` is shared by the threads that may not all poll at once.
    pub fn new(poll_max_ns: u64, limit: &Arc<PollerLimit>) -> Self {
        let poll_max_ns = poll_max_ns.min(POLL_MAX_NS);
        Self {
            poll_max_ns,
            limit: Arc::clone(limit),
            budget_ns: 0,
            deadline_ns: None,
            idle_since_ns: None,
            has_slept: false,
            credit_ns: poll_max_ns * CREDIT_POLLS,
            backoff_until_ns: 0,
            backoff_per_loss: *BACKOFF_PER_LOSS.start(),
            hits: 0,
        }
    }

    /// Polls until `is_ready` returns true or the budget is used up. Returns whether it was ready.
    ///
    /// `is_ready` is called at least once, also without a budget, and once more after the last `yield_now`.
    pub fn poll_until(
        &mut self,
        mut clock_ns: impl FnMut() -> u64,
        mut yield_now: impl FnMut(),
        mut is_ready: impl FnMut() -> bool,
    ) -> bool {
        loop {
            let begin_ns = clock_ns();
            let should_poll = self.should_poll(begin_ns);
            if is_ready() {
                self.record_work(begin_ns);
                return true;
            }
            if !should_poll {
                return false;
            }
            yield_now();
            let now_ns = clock_ns();
            self.record_yield(now_ns.saturating_sub(begin_ns), now_ns);
        }
    }

    /// Returns whether to yield and look again instead of sleeping. To be called when there is nothing to do.
    pub fn should_poll(&mut self, now_ns: u64) -> bool {
        self.idle_since_ns.get_or_insert(now_ns);
        if let Some(deadline_ns) = self.deadline_ns {
            if now_ns < deadline_ns {
                return true;
            }
            self.stop_polling();
            self.charge_expired_poll(now_ns);
            return false;
        }
        if self.budget_ns == 0 || now_ns < self.backoff_until_ns || !self.limit.enter() {
            return false;
        }
        self.deadline_ns = Some(now_ns.saturating_add(self.budget_ns));
        true
    }

    /// Records a yield that took `took_ns` and ended at `now_ns`. A late one ends the poll and backs off.
    ///
    /// The caller should look for work once more all the same: it may have come meanwhile.
    pub fn record_yield(&mut self, took_ns: u64, now_ns: u64) {
        if took_ns >= LATE_YIELD_NS {
            self.stop_polling();
            self.backoff(took_ns, now_ns);
        }
    }

    /// Records that the thread has slept. A wake-up without work needs no other call.
    pub fn record_sleep(&mut self) {
        self.has_slept = true;
    }

    /// Records that there was something to do, and adapts the budget.
    pub fn record_work(&mut self, now_ns: u64) {
        if self.stop_polling() {
            self.hits = self.hits.saturating_add(1);
            self.credit_ns = (self.credit_ns + SAVED_PER_HIT_NS).min(self.credit_max_ns());
        }
        let (idle_since_ns, has_slept) = (self.idle_since_ns.take(), core::mem::take(&mut self.has_slept));
        let Some(idle_since_ns) = idle_since_ns.filter(|_| has_slept) else { return };
        // With a longer budget the thread would not have slept, or the poll would have expired.
        self.budget_ns = if now_ns.saturating_sub(idle_since_ns) < self.poll_max_ns {
            (self.budget_ns * 2).clamp(BUDGET_MIN_NS.min(self.poll_max_ns), self.poll_max_ns)
        } else if self.budget_ns / 2 < BUDGET_MIN_NS {
            0
        } else {
            self.budget_ns / 2
        };
    }

    fn charge_expired_poll(&mut self, now_ns: u64) {
        // The budget rather than the elapsed time: what the thread yielded was of use to others.
        self.credit_ns = self.credit_ns.saturating_sub(self.budget_ns);
        if self.credit_ns == 0 {
            self.credit_ns = self.credit_max_ns();
            self.backoff(self.credit_ns, now_ns);
        }
    }

    fn credit_max_ns(&self) -> u64 {
        self.poll_max_ns * CREDIT_POLLS
    }

    /// Stops polling for a multiple of `lost_ns`, longer each time unless polls have succeeded since.
    fn backoff(&mut self, lost_ns: u64, now_ns: u64) {
        if core::mem::take(&mut self.hits) >= HITS_FOR_RESET {
            self.backoff_per_loss = *BACKOFF_PER_LOSS.start();
        }
        self.backoff_until_ns = now_ns.saturating_add(lost_ns.min(LOSS_MAX_NS) * self.backoff_per_loss);
        self.backoff_per_loss = (self.backoff_per_loss * BACKOFF_GROWTH).min(*BACKOFF_PER_LOSS.end());
    }

    /// Ends the current poll. Returns whether there was one.
    fn stop_polling(&mut self) -> bool {
        let was_polling = self.deadline_ns.take().is_some();
        if was_polling {
            self.limit.leave();
        }
        was_polling
    }
}

impl Drop for AdaptivePoller {
    fn drop(&mut self) {
        self.stop_polling();
    }
}

#[cfg(test)]
#[path = "adaptive_test.rs"]
mod tests;
