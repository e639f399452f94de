//! Decides whether a worker performs an operation that may wait for the host's disk.
//!
//! Handing a request to another thread costs more than most lookups, even those that the host cannot answer from its
//! caches, such as a name that does not exist. So the worker performs them itself until one is slow. The next ones go
//! to the pool, and after a number of them the worker tries again.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::clock::now_ns;

/// Operations that take longer belong in the pool, apart from the time to copy data. The value is many times the cost
/// of a hand-over, and less than the seek time of a disk. On a busy machine, waiting for the processor can take longer:
/// that costs the hand-overs of the next operations.
const SLOW_NS: u64 = 1_000_000;

/// Bytes that are copied in a nanosecond where memory is slow. A disk that is as fast needs no pool.
const COPIED_BYTES_PER_NS: u64 = 3;

/// Number of operations sent to the pool after a slow one: a queue can bear one stall in this many operations.
const SENT_AWAY: u32 = 64;

/// When the last of several pieces of work ended, which is when the next one begins: for each the clock is read once.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    end_ns: Option<u64>,
}

impl Stopwatch {
    /// Other work follows, which is not measured.
    pub(super) fn pause(&mut self) {
        self.end_ns = None;
    }
}

/// Opens and closes according to the latencies that it observes.
#[derive(Debug, Default)]
pub(super) struct Gate {
    to_send_away: AtomicU32,
}

impl Gate {
    /// Runs `work` and measures its latency, or returns `None` if the pool should run it.
    pub(super) fn pass<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        self.pass_next(&mut Stopwatch::default(), work)
    }

    /// Does the same for work that copies at most `len_bytes` of data.
    pub(super) fn pass_copy<T>(&self, len_bytes: usize, work: impl FnOnce() -> T) -> Option<T> {
        let copy_ns = u64::try_from(len_bytes).unwrap_or(u64::MAX) / COPIED_BYTES_PER_NS;
        self.measure(&mut Stopwatch::default(), SLOW_NS.saturating_add(copy_ns), work)
    }

    /// Does the same for work that follows the work that `watch` has measured before, without a pause.
    pub(super) fn pass_next<T>(&self, watch: &mut Stopwatch, work: impl FnOnce() -> T) -> Option<T> {
        self.measure(watch, SLOW_NS, work)
    }

    fn measure<T>(&self, watch: &mut Stopwatch, slow_ns: u64, work: impl FnOnce() -> T) -> Option<T> {
        if self.is_closed() {
            return None;
        }
        let begun_ns = watch.end_ns.unwrap_or_else(now_ns);
        let outcome = work();
        let end_ns = now_ns();
        watch.end_ns = Some(end_ns);
        if end_ns.saturating_sub(begun_ns) > slow_ns {
            self.close();
        }
        Some(outcome)
    }

    /// Returns whether the pool should run the work, and counts that.
    fn is_closed(&self) -> bool {
        self.to_send_away.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Sends the next operations to the pool.
    pub(super) fn close(&self) {
        self.to_send_away.store(SENT_AWAY, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use super::*;

    #[test]
    fn after_a_slow_one_some_are_sent_away() {
        let gate = Gate::default();
        let slow = || sleep(Duration::from_nanos(SLOW_NS * 2));
        assert!(gate.pass(slow).is_some());
        assert!((0..SENT_AWAY).all(|_| gate.pass(|| ()).is_none()));
        assert!(gate.pass(slow).is_some());
        assert!(gate.pass(|| ()).is_none());
    }

    #[test]
    fn copying_much_is_not_slow() {
        const HOUR_BYTES: usize = 3 * 3_600_000_000_000;
        let gate = Gate::default();
        assert!(gate.pass_copy(HOUR_BYTES, || sleep(Duration::from_nanos(SLOW_NS * 2))).is_some());
        assert!(gate.pass_copy(0, || sleep(Duration::from_nanos(SLOW_NS * 2))).is_some());
        assert!(gate.pass_copy(HOUR_BYTES, || ()).is_none());
    }

    #[test]
    fn work_that_follows_is_measured_from_the_end_of_the_work_before() {
        let gate = Gate::default();
        let mut watch = Stopwatch::default();
        assert_eq!(gate.pass_next(&mut watch, || 1), Some(1));
        watch.end_ns = watch.end_ns.map(|end_ns| end_ns.saturating_sub(SLOW_NS * 2));
        assert_eq!(gate.pass_next(&mut watch, || 2), Some(2), "it was slow");
        assert_eq!(gate.pass_next(&mut watch, || 3), None);
    }
}
