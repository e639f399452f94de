//! Decides whether a worker performs an operation that may wait for the host's disk.
//!
//! Handing a request to another thread costs more than most lookups, even those that the host cannot answer from its
//! caches, such as a name that does not exist. So the worker performs them itself until one is slow. The next ones go
//! to the pool, and after a number of them the worker tries again.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// Operations that take longer belong in the pool. The value is many times the cost of a hand-over, and more than it
/// takes to copy a mebibyte or to get the processor back on a busy machine; it is less than the seek time of a disk.
const SLOW: Duration = Duration::from_millis(1);

/// Number of operations sent to the pool after a slow one: a queue can bear one stall in this many operations.
const SENT_AWAY: u32 = 64;

/// Opens and closes according to the latencies that it observes.
#[derive(Debug, Default)]
pub(super) struct Gate {
    to_send_away: AtomicU32,
}

impl Gate {
    /// Runs `work` and measures its latency, or returns `None` if the pool should run it.
    pub(super) fn pass<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        if self.to_send_away.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
            return None;
        }
        let begin = Instant::now();
        let outcome = work();
        self.note(begin.elapsed());
        Some(outcome)
    }

    fn note(&self, took: Duration) {
        if took > SLOW {
            self.to_send_away.store(SENT_AWAY, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_slow_one_some_are_sent_away() {
        let gate = Gate::default();
        gate.note(SLOW);
        assert_eq!(gate.pass(|| 1), Some(1));
        gate.note(SLOW * 2);
        assert!((0..SENT_AWAY).all(|_| gate.pass(|| 1).is_none()));
        assert_eq!(gate.pass(|| 2), Some(2));
    }
}
