//! [`RetryPolicy`]: how often and for how long to try to get a new daemon.

use std::{collections::VecDeque, time::Duration};

/// The most daemons that are started within [`STARTS_WINDOW`]. One that dies more often dies of the requests it gets.
const STARTS_MAX: usize = 5;
const STARTS_WINDOW: Duration = Duration::from_secs(60);
/// The pause between the first failure and the second attempt. Each later one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Counts attempts. All times are in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub(super) struct RetryPolicy {
    /// How long the mount may be without a daemon.
    wait_max: Duration,
    /// Whether daemons are started, as opposed to connected to.
    starts: bool,
    started_ns: VecDeque<u64>,
    /// When the last daemon began to serve.
    served_ns: u64,
    /// Since when no daemon has served for longer than [`PAUSE_MAX`].
    lost_ns: u64,
    pause: Option<Duration>,
}

impl RetryPolicy {
    /// Creates the policy of a mount whose first daemon serves.
    pub(super) fn new(wait_max: Duration, starts: bool, now_ns: u64) -> Self {
        Self { wait_max, starts, started_ns: VecDeque::new(), served_ns: now_ns, lost_ns: now_ns, pause: None }
    }

    /// Records that a daemon serves from now on.
    pub(super) fn served(&mut self, now_ns: u64) {
        self.served_ns = now_ns;
    }

    /// Records that the daemon is gone. If it served for a short time only, the pauses and the time go on as if it
    /// never had.
    pub(super) fn lost(&mut self, now_ns: u64) {
        let is_first = self.pause.is_none();
        if is_first || now_ns.saturating_sub(self.served_ns) > PAUSE_MAX.as_nanos() as u64 {
            (self.lost_ns, self.pause) = (now_ns, None);
        }
    }

    /// Returns how long to wait before the next attempt, or `None` to give up.
    pub(super) fn next(&mut self, now_ns: u64) -> Option<Duration> {
        if now_ns.saturating_sub(self.lost_ns) >= self.wait_max.as_nanos() as u64 {
            return None;
        }
        while self.started_ns.front().is_some_and(|at| now_ns.saturating_sub(*at) >= STARTS_WINDOW.as_nanos() as u64) {
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
        let mut policy = RetryPolicy::new(Duration::from_secs(600), true, 0);
        policy.lost(0);
        assert_eq!(
            (0..6).map(|_| policy.next(SECOND).is_some()).collect::<Vec<_>>(),
            [true, true, true, true, true, false]
        );
        assert!(policy.next(60 * SECOND).is_none());
        assert_eq!((0..6).filter(|_| policy.next(61 * SECOND).is_some()).count(), 5);
    }

    #[test]
    fn a_socket_is_tried_at_once_and_then_less_and_less_often_until_the_time_is_over() {
        let mut policy = RetryPolicy::new(Duration::from_secs(60), false, 0);
        policy.lost(5 * SECOND);
        let pauses: Vec<_> = (0..8).map(|_| policy.next(6 * SECOND).unwrap().as_millis()).collect();
        assert_eq!(pauses, [0, 50, 100, 200, 400, 800, 1000, 1000]);
        assert!(policy.next(64 * SECOND).is_some() && policy.next(65 * SECOND).is_none());
        policy.served(68 * SECOND);
        policy.lost(70 * SECOND);
        assert_eq!(policy.next(70 * SECOND), Some(Duration::ZERO));
    }

    #[test]
    fn a_daemon_that_dies_at_once_restarts_neither_the_pauses_nor_the_time() {
        let mut policy = RetryPolicy::new(Duration::from_secs(60), false, 0);
        let pauses: Vec<_> = (0..4)
            .map(|_| {
                policy.lost(SECOND);
                let pause = policy.next(SECOND).unwrap();
                policy.served(SECOND);
                pause.as_millis()
            })
            .collect();
        assert_eq!(pauses, [0, 50, 100, 200]);
        policy.served(61 * SECOND);
        policy.lost(62 * SECOND);
        assert!(policy.next(62 * SECOND).is_none());
    }
}
