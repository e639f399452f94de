//! Limits of a guest's input and output a second.
//!
//! A request is paid for when it is taken off the ring, with the bytes of its buffers, and it is served whole; what
//! COPY_FILE_RANGE has copied is paid for afterwards. While the guest owes time, its queues wait: nothing is dropped,
//! and only its own requests are delayed. What it has not used is saved for [`BURST`].

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// What a guest that has rested may do at once.
const BURST: Duration = Duration::from_millis(100);

/// What a guest may do in a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Bytes of requests and replies.
    pub bytes: Option<u64>,
    /// Requests.
    pub requests: Option<u64>,
}

/// The account of a guest, which all its queues use.
#[derive(Debug)]
pub(super) struct Rate {
    limits: RateLimits,
    /// When everything that was served is paid for.
    paid_at: Mutex<Instant>,
}

impl Rate {
    pub(super) fn new(limits: RateLimits) -> Self {
        Self { limits, paid_at: Mutex::new(Instant::now()) }
    }

    /// Records a request of `len_bytes` that begins at `now`.
    pub(super) fn charge(&self, len_bytes: usize, now: Instant) {
        self.add(len_bytes as u64, 1, now);
    }

    /// Records data that a request has moved without buffers of the guest, at `now`.
    pub(super) fn charge_copied(&self, len_bytes: u64, now: Instant) {
        self.add(len_bytes, 0, now);
    }

    fn add(&self, len_bytes: u64, requests: u64, now: Instant) {
        let time = |amount: u64, per_second: Option<u64>| {
            per_second.map_or(Duration::ZERO, |per_second| {
                let ns = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
                Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
            })
        };
        let cost = time(len_bytes, self.limits.bytes).max(time(requests, self.limits.requests));
        let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        let saved = now.checked_sub(BURST).unwrap_or(now);
        let begin = (*paid_at).max(saved);
        *paid_at = begin.checked_add(cost).unwrap_or(begin);
    }

    /// Returns how long the next request has to wait at `now`.
    pub(super) fn delay(&self, now: Instant) -> Option<Duration> {
        let paid_at = *self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        paid_at.checked_duration_since(now).filter(|delay| !delay.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves requests of `len_bytes` as they may be served, and returns the time until the last one begins.
    fn time(limits: RateLimits, requests: u32, len_bytes: usize) -> Duration {
        let rate = Rate::new(limits);
        let begun = Instant::now();
        let mut now = begun;
        for _ in 0..requests {
            now += rate.delay(now).unwrap_or_default();
            rate.charge(len_bytes, now);
        }
        now - begun
    }

    #[test]
    fn bytes_and_requests_take_the_time_that_they_cost() {
        let bytes = RateLimits { bytes: Some(1 << 20), requests: None };
        let seconds = time(bytes, 101, 1 << 18).as_secs_f64();
        assert!((24.8..=25.0).contains(&seconds), "100 of 256 KiB at 1 MiB a second: {seconds}");
        let requests = RateLimits { bytes: None, requests: Some(50) };
        let seconds = time(requests, 501, 1 << 18).as_secs_f64();
        assert!((9.8..=10.0).contains(&seconds), "500 at 50 a second: {seconds}");
        // The slower one counts.
        let both = RateLimits { bytes: Some(1 << 20), requests: Some(50) };
        assert!(time(both, 101, 1 << 18).as_secs_f64() >= 24.8);
    }

    #[test]
    fn a_rest_saves_no_more_than_a_burst() {
        let rate = Rate::new(RateLimits { bytes: None, requests: Some(100) });
        let now = Instant::now() + Duration::from_secs(3600);
        let free = (0..1000)
            .take_while(|_| {
                rate.delay(now).is_none() && {
                    rate.charge(0, now);
                    true
                }
            })
            .count();
        assert!((10..=12).contains(&free), "{free}");
    }
}
