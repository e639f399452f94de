//! How often and how long a new daemon is tried for.

use std::{collections::VecDeque, time::Duration};

/// Daemons that are started within [`STARTS_WITHIN`]: one that dies as often dies of what it is asked.
const STARTS_MAX: usize = 5;
const STARTS_WITHIN: Duration = Duration::from_secs(60);
/// Between the first failure and the second attempt; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Counts attempts. All times are of the monotonic clock, in nanoseconds.
#[derive(Debug)]
pub(super) struct Limit {
    /// How long the mount goes without a daemon.
    wait_max: Duration,
    /// A daemon is started rather than connected to.
    starts: bool,
    started_ns: VecDeque<u64>,
    /// Since when there is no daemon.
    lost_ns: u64,
    pause: Option<Duration>,
}

impl Limit {
    pub(super) fn new(wait_max: Duration, starts: bool) -> Self {
        Self { wait_max, starts, started_ns: VecDeque::new(), lost_ns: 0, pause: None }
    }

    /// There is no daemon from now on.
    pub(super) fn lost(&mut self, now_ns: u64) {
        (self.lost_ns, self.pause) = (now_ns, None);
    }

    /// How long to wait before the next attempt; nothing where there is to be none.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Duration> {
        if now_ns.saturating_sub(self.lost_ns) >= self.wait_max.as_nanos() as u64 {
            return None;
        }
        while self.started_ns.front().is_some_and(|at| now_ns.saturating_sub(*at) >= STARTS_WITHIN.as_nanos() as u64) {
            self.started_ns.pop_front();
        }
        if self.starts && self.started_ns.len() >= STARTS_MAX {
            return None;
        }
        self.started_ns.push_back(now_ns);
        let pause = self.pause.unwrap_or_default();
        self.pause = Some((pause * 2).clamp(PAUSE_MIN, PAUSE_MAX));
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn the_sixth_start_in_a_minute_is_refused_and_a_minute_later_there_are_five_again() {
        let mut limit = Limit::new(Duration::from_secs(600), true);
        limit.lost(0);
        assert_eq!(
            (0..6).map(|_| limit.next(SECOND).is_some()).collect::<Vec<_>>(),
            [true, true, true, true, true, false]
        );
        assert!(limit.next(60 * SECOND).is_none());
        assert_eq!((0..6).filter(|_| limit.next(61 * SECOND).is_some()).count(), 5);
    }

    #[test]
    fn a_socket_is_tried_until_the_time_is_over_at_first_at_once_and_then_less_and_less_often() {
        let mut limit = Limit::new(Duration::from_secs(60), false);
        limit.lost(5 * SECOND);
        let pauses: Vec<_> = (0..8).map(|_| limit.next(6 * SECOND).unwrap().as_millis()).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert!(limit.next(64 * SECOND).is_some() && limit.next(65 * SECOND).is_none());
        limit.lost(70 * SECOND);
        assert_eq!(limit.next(70 * SECOND), Some(Duration::ZERO));
    }
}
