//! Timing of one workload: the total time, and a histogram of single operations.

use std::time::Instant;

use hdrhistogram::Histogram;

use super::{
    clock::ticks,
    line::{LatencyCount, Timing},
};

/// Three significant digits: an error of one in a thousand is far below the difference between two runs.
const DIGITS: u8 = 3;
/// Number of latency classes per doubling.
const CLASSES_PER_OCTAVE: f64 = 4.0;

/// A stopwatch that runs from its creation until [`Laps::stop`].
pub(super) struct Laps {
    begun: Instant,
    begun_ticks: u64,
    /// When it was stopped, by both clocks.
    ended: Option<(Instant, u64)>,
    last_ticks: u64,
    bytes: u64,
    histogram: Histogram<u64>,
}

impl Laps {
    pub(super) fn begin() -> Self {
        // The largest value is an operation of some hours at any clock rate.
        let histogram = Histogram::new_with_max(1 << 48, DIGITS).expect("three digits up to 2^48 are within bounds");
        let begun_ticks = ticks();
        Self { begun: Instant::now(), begun_ticks, ended: None, last_ticks: begun_ticks, bytes: 0, histogram }
    }

    /// Records the end of an operation; the next one begins now.
    pub(super) fn lap(&mut self, bytes: usize) {
        let now = ticks();
        self.histogram.saturating_record(now.saturating_sub(self.last_ticks));
        self.last_ticks = now;
        self.bytes += bytes as u64;
    }

    /// Stops the watch.
    pub(super) fn stop(&mut self) {
        self.ended = Some((Instant::now(), ticks()));
    }

    /// Adds the work of another thread in the same period: the time runs from the first start to the last end.
    pub(super) fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        self.bytes += other.bytes;
        (self.begun, self.begun_ticks) = (self.begun, self.begun_ticks).min((other.begun, other.begun_ticks));
        self.ended = self.ended.max(other.ended);
    }

    /// Returns the result of the stopped watch.
    pub(super) fn timing(self, workload: &str) -> Timing {
        let (ended, ended_ticks) = self.ended.unwrap_or_else(|| (Instant::now(), ticks()));
        let elapsed_ns = (ended - self.begun).as_nanos() as u64;
        let ns_per_tick = elapsed_ns as f64 / ended_ticks.saturating_sub(self.begun_ticks).max(1) as f64;
        let at = |quantile| (self.histogram.value_at_quantile(quantile) as f64 * ns_per_tick) as u64;
        let ops = self.histogram.len();
        Timing {
            workload: workload.to_owned(),
            ops,
            bytes: self.bytes,
            elapsed_ns,
            ops_per_s: ops as f64 * 1e9 / elapsed_ns.max(1) as f64,
            latency_p50_ns: at(0.5),
            latency_p99_ns: at(0.99),
            latency_counts: counts(&self.histogram, ns_per_tick),
        }
    }
}

/// Counts a histogram of latencies, whose unit is `ns_per_unit` nanoseconds, in classes a quarter of an octave wide.
pub(crate) fn counts(histogram: &Histogram<u64>, ns_per_unit: f64) -> Vec<LatencyCount> {
    let mut counts: Vec<LatencyCount> = Vec::new();
    for value in histogram.iter_recorded() {
        let (ns, count) = (value.value_iterated_to() as f64 * ns_per_unit, value.count_at_value());
        let class = (ns.max(1.0).log2() * CLASSES_PER_OCTAVE).floor() + 1.0;
        let below_ns = (class / CLASSES_PER_OCTAVE).exp2().round() as u64;
        match counts.last_mut() {
            Some(last) if last.below_ns == below_ns => last.count += count,
            _ => counts.push(LatencyCount { below_ns, count }),
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_in_quarters_of_octaves() {
        let mut histogram = Histogram::new(DIGITS).unwrap();
        for (ticks, count) in [(500, 2), (510, 1), (515, 4), (2048, 1)] {
            histogram.record_n(ticks, count).unwrap();
        }
        let counts = counts(&histogram, 2.0);
        let pairs: Vec<_> = counts.iter().map(|class| (class.below_ns, class.count)).collect();
        assert_eq!(pairs, [(1024, 3), (1218, 4), (4871, 1)]);
    }

    #[test]
    fn threads_together_take_from_the_first_begin_to_the_last_end() {
        let mut first = Laps::begin();
        let mut second = Laps::begin();
        second.lap(10);
        second.stop();
        first.lap(1);
        first.stop();
        let (begun, ended) = (first.begun, first.ended);
        second.add(&first);
        assert_eq!((second.begun, second.ended, second.bytes, second.histogram.len()), (begun, ended, 11, 2));
    }
}
