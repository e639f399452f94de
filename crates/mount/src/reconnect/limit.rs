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
    /// Since when one serves.
    served_ns: u64,
    /// Since when there is no daemon that has served for longer than [`PAUSE_MAX`].
    lost_ns: u64,
    pause: Option<Duration>,
}

impl Limit {
    /// The first daemon serves.
    pub(super) fn new(wait_max: Duration, starts: bool, now_ns: u64) -> Self {
        Self { wait_max, starts, started_ns: VecDeque::new(), served_ns: now_ns, lost_ns: now_ns, pause: None }
    }

    /// There is a daemon from now on.
    pub(super) fn served(&mut self, now_ns: u64) {
        self.served_ns = now_ns;
    }

    /// There is no daemon from now on. One that has gone at once is as none: the pauses and the time go on.
    pub(super) fn lost(&mut self, now_ns: u64) {
        let is_first = self.pause.is_none();
        if is_first || now_ns.saturating_sub(self.served_ns) > PAUSE_MAX.as_nanos() as u64 {
            (self.lost_ns, self.pause) = (now_ns, None);
        }
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
        let mut limit = Limit::new(Duration::from_secs(600), true, 0);
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
        let mut limit = Limit::new(Duration::from_secs(60), false, 0);
        limit.lost(5 * SECOND);
        let pauses: Vec<_> = (0..8).map(|_| limit.next(6 * SECOND).unwrap().as_millis()).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert!(limit.next(64 * SECOND).is_some() && limit.next(65 * SECOND).is_none());
        limit.served(68 * SECOND);
        limit.lost(70 * SECOND);
        assert_eq!(limit.next(70 * SECOND), Some(Duration::ZERO));
    }

    #[test]
    fn a_daemon_that_goes_as_soon_as_it_has_come_starts_neither_the_pauses_nor_the_time_anew() {
        let mut limit = Limit::new(Duration::from_secs(60), false, 0);
        let pauses: Vec<_> = (0..4)
            .map(|_| {
                limit.lost(SECOND);
                let pause = limit.next(SECOND).unwrap();
                limit.served(SECOND);
                pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [0, 50, 100, 200]);
        limit.served(61 * SECOND);
        limit.lost(62 * SECOND);
        assert!(limit.next(62 * SECOND).is_none());
    }
}
