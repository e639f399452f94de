//! The stop watch of one workload: the whole time, and a histogram of single operations.

use std::time::Instant;

use hdrhistogram::Histogram;

use super::{clock::ticks, line::Timing};

/// Three digits: one in a thousand is far below what two runs differ by.
const DIGITS: u8 = 3;

/// A watch that runs from its making until [`Laps::timing`].
pub(super) struct Laps {
    begun: Instant,
    begun_ticks: u64,
    last_ticks: u64,
    bytes: u64,
    histogram: Histogram<u64>,
}

impl Laps {
    pub(super) fn begin() -> Self {
        // The largest value is an operation of some hours at any clock rate.
        let histogram = Histogram::new_with_max(1 << 48, DIGITS).expect("three digits up to 2^48 are within bounds");
        let begun_ticks = ticks();
        Self { begun: Instant::now(), begun_ticks, last_ticks: begun_ticks, bytes: 0, histogram }
    }

    /// An operation ended; the next one begins now.
    pub(super) fn lap(&mut self, bytes: usize) {
        let now = ticks();
        self.histogram.saturating_record(now.saturating_sub(self.last_ticks));
        self.last_ticks = now;
        self.bytes += bytes as u64;
    }

    /// Stops the watch.
    pub(super) fn timing(self, workload: &str) -> Timing {
        let elapsed_ns = self.begun.elapsed().as_nanos() as u64;
        let ns_per_tick = elapsed_ns as f64 / ticks().saturating_sub(self.begun_ticks).max(1) as f64;
        let at = |quantile| (self.histogram.value_at_quantile(quantile) as f64 * ns_per_tick) as u64;
        let ops = self.histogram.len();
        Timing {
            workload: workload.to_owned(),
            ops,
            bytes: self.bytes,
            elapsed_ns,
            ops_per_s: ops as f64 * 1e9 / elapsed_ns.max(1) as f64,
            latency_p50_ns: at(0.5),
            latency_p90_ns: at(0.9),
            latency_p99_ns: at(0.99),
            latency_max_ns: (self.histogram.max() as f64 * ns_per_tick) as u64,
        }
    }
}
