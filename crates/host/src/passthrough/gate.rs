//! Whether a worker should do itself what may wait for the host's disk.
//!
//! Handing a request to another thread costs more than most lookups take, even those that the host cannot answer from
//! its caches: a name that does not exist is one. So the worker does them itself until one proves slow; the next ones
//! go to the pool, and after some of them the worker tries again.

use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// What takes longer is better done elsewhere: many times a hand-over, and more than a mebibyte takes to copy or a busy
/// machine to give the processor back; less than a disk's seek.
const SLOW: Duration = Duration::from_millis(1);

/// After a slow one, how many are sent away before the next attempt: one stall in so many is what a queue can bear.
const SENT_AWAY: u32 = 64;

/// Opens and shuts by what it sees.
#[derive(Debug, Default)]
pub(super) struct Gate {
    to_send_away: AtomicU32,
}

impl Gate {
    /// Does `work` here and watches how long it takes; `None` if it is better done elsewhere.
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
