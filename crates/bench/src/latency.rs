//! Histograms of latencies.

use hdrhistogram::Histogram;

/// The longest latency that is told apart, in nanoseconds: a minute. Longer ones count as this one.
const LONGEST_NS: u64 = 60_000_000_000;

/// Creates a histogram of latencies in nanoseconds, of three digits. Its range is fixed: a histogram that can grow is
/// not grown by `saturating_record`.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds and the number of digits are valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_latencies_are_recorded_as_they_are() {
        let mut latencies = histogram();
        latencies.saturating_record(1_000_000);
        let median = latencies.value_at_quantile(0.5);
        assert!((999_000..=1_001_000).contains(&median), "{median}");
        latencies.saturating_record(u64::MAX);
        assert!(latencies.max() >= LONGEST_NS);
    }
}
