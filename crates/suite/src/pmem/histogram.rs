//! Latencies by powers of two.

use std::time::Duration;

/// Some latencies, of which there is at least one.
#[derive(Debug)]
pub(super) struct Histogram {
    /// In microseconds, ascending.
    sorted: Vec<u64>,
}

impl Histogram {
    /// `None` where there are no latencies.
    pub(super) fn of(latencies: &[Duration]) -> Option<Self> {
        let mut sorted: Vec<u64> = latencies.iter().map(|latency| latency.as_micros() as u64).collect();
        sorted.sort_unstable();
        (!sorted.is_empty()).then_some(Self { sorted })
    }

    fn min(&self) -> u64 {
        self.sorted[0]
    }

    fn max(&self) -> u64 {
        self.sorted[self.sorted.len() - 1]
    }

    fn median(&self) -> u64 {
        self.sorted[self.sorted.len() / 2]
    }

    fn mean(&self) -> u64 {
        self.sorted.iter().sum::<u64>() / self.sorted.len() as u64
    }

    /// Cells of a table.
    pub(super) fn cells(&self) -> String {
        format!("{} | {} | {} | {}", self.min(), self.median(), self.mean(), self.max())
    }

    /// A line for each power of two from the least latency to the greatest.
    pub(super) fn lines(&self) -> String {
        const BAR_LEN: usize = 50;
        let mut lines = String::new();
        for power in power_of(self.min())..=power_of(self.max()) {
            let count = self.sorted.iter().filter(|&&latency| power_of(latency) == power).count();
            let (from, to) = (if power == 0 { 0 } else { 1_u64 << power }, (2_u64 << power) - 1);
            let bar = "#".repeat((count * BAR_LEN).div_ceil(self.sorted.len()));
            lines += format!("{from:8} - {to:<8} us {count:5} {bar}").trim_end();
            lines.push('\n');
        }
        lines
    }
}

fn power_of(latency: u64) -> u32 {
    latency.checked_ilog2().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_powers_of_two() {
        let latencies = [0, 1, 2, 3, 4, 16, 16].map(Duration::from_micros);
        let histogram = Histogram::of(&latencies).unwrap();
        assert_eq!(histogram.cells(), "0 | 3 | 6 | 16");
        let counts: Vec<_> =
            histogram.lines().lines().map(|line| line.split_whitespace().nth(4).unwrap().to_owned()).collect();
        assert_eq!(counts, ["2", "2", "1", "0", "2"]);
        assert!(Histogram::of(&[]).is_none());
    }
}
