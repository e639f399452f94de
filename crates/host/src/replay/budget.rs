//! How many changes a second are announced: the guest's own requests come first.

use std::time::{Duration, Instant};

/// Changes that may be announced at once: some seconds of work for a guest, as after a switch to another branch.
const BURST: u32 = 8192;

/// Changes a second in the long run. A guest needs 0.1 to 0.3 ms for each with hardware virtualization, and so spends
/// about half of one processor on them at the most.
const RATE: u32 = 2048;

/// The changes that may be announced now: up to a burst, refilled steadily.
#[derive(Debug)]
pub(super) struct Budget {
    left: u32,
    refilled: Instant,
}

impl Budget {
    /// Begins with a burst.
    pub(super) fn new(now: Instant) -> Self {
        Self { left: BURST, refilled: now }
    }

    /// Returns how many changes may be announced at `now`.
    pub(super) fn available(&mut self, now: Instant) -> u32 {
        let passed = now.saturating_duration_since(self.refilled);
        let earned = (passed.as_secs_f64() * f64::from(RATE)) as u32;
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            // What was not enough for one change is kept for the next time.
            self.refilled += Duration::from_secs(earned.into()) / RATE;
        }
        self.left
    }

    /// Takes `count` of what is available.
    pub(super) fn spend(&mut self, count: u32) {
        self.left = self.left.saturating_sub(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_a_steady_rate() {
        let begun = Instant::now();
        let mut budget = Budget::new(begun);
        assert_eq!(budget.available(begun), BURST);
        budget.spend(BURST);
        assert_eq!(budget.available(begun), 0);
        let mut announced = 0;
        for millisecond in 1..=2000 {
            let available = budget.available(begun + Duration::from_millis(millisecond));
            budget.spend(available);
            announced += available;
        }
        assert_eq!(announced, 2 * RATE);
        assert_eq!(budget.available(begun + Duration::from_secs(3600)), BURST, "no more than a burst");
    }
}
