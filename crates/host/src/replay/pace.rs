//! Whether the agent keeps up with the changes, so that the guest may cache for longer.
//!
//! Asked for each reply, so it takes no lock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

/// How long an agent may be silent. It exchanges four times a second when nothing happens, and a guest without hardware
/// virtualization needs up to a quarter of a second for the changes of one exchange.
const SILENCE_MAX: Duration = Duration::from_secs(2);

/// The agent's last sign of life, and the changes that were seen.
#[derive(Debug)]
pub(super) struct Pace {
    begun: Instant,
    /// Milliseconds since `begun` until which the agent counts as keeping up; 0 if it does not.
    until_ms: AtomicU64,
    /// Number of changes by others.
    seen: AtomicU64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { begun: Instant::now(), until_ms: AtomicU64::new(0), seen: AtomicU64::new(0) }
    }
}

impl Pace {
    /// Notes that the agent has acknowledged what was announced to it.
    pub(super) fn acknowledged(&self, now: Instant) {
        self.until_ms.store(self.ms(now + SILENCE_MAX), Relaxed);
    }

    /// Notes that the agent is gone or lags behind, until it acknowledges again.
    pub(super) fn lost(&self) {
        self.until_ms.store(0, Relaxed);
    }

    pub(super) fn keeps_up(&self, now: Instant) -> bool {
        self.ms(now) < self.until_ms.load(Relaxed)
    }

    pub(super) fn count_change(&self) {
        self.seen.fetch_add(1, Relaxed);
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.load(Relaxed)
    }

    fn ms(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_is_silent_or_lost_does_not_keep_up() {
        let pace = Pace::default();
        let now = pace.begun + Duration::from_secs(100);
        assert!(!pace.keeps_up(now));
        pace.acknowledged(now);
        assert!(pace.keeps_up(now));
        assert!(pace.keeps_up(now + SILENCE_MAX / 2));
        assert!(!pace.keeps_up(now + SILENCE_MAX));
        pace.acknowledged(now);
        pace.lost();
        assert!(!pace.keeps_up(now));
    }
}
