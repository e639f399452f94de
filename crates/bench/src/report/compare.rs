//! Compares the first daemon with another, row by row, and determines when no statement is possible.

use std::fmt;

use super::{HOST, Measure, Report, Sample, statistics};

/// The comparison of the pairs of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median of the ratios, round by round; above 1 is better for the first daemon.
    pub median: f64,
    /// The interval that contains the true median; `None` if there are too few rounds.
    pub interval: Option<(f64, f64)>,
    /// The conclusion.
    pub verdict: Verdict,
}

/// The conclusion from a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The whole interval is above 1, and the median clearly is.
    Better,
    /// The whole interval is below 1, and the median clearly is.
    Worse,
    /// The whole interval is within [`EQUAL_WITHIN`] of 1.
    Equal,
    /// The spread hides the difference, or there are too few rounds.
    Unclear,
}

/// Two daemons this close count as equal: a guest's own work varies by as much between boots.
const EQUAL_WITHIN: f64 = 0.03;

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// Bytes per operation; 0 if there is no payload.
    pub bytes_per_op: u64,
    /// The daemons in the order of the report, then the host.
    pub cells: Vec<Cell>,
    /// Operations per second of the first daemon relative to each other one.
    pub speed: Vec<Option<Ratio>>,
    /// The same for the daemon's processor time; above 1 means that the first one needs less.
    pub cpu: Vec<Option<Ratio>>,
    /// The first daemon relative to the bare directory, by medians.
    pub host: Option<f64>,
}

/// One daemon in one row.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Median of the operations per second.
    pub ops_per_s: Option<f64>,
    /// Median absolute deviation, relative to the median.
    pub spread: Option<f64>,
    /// Median of the rounds' median latencies.
    pub p50_ns: Option<f64>,
    /// Median of the rounds' 99th-percentile latencies.
    pub p99_ns: Option<f64>,
    /// Median of the processor time per operation.
    pub cpu_ns_per_op: Option<f64>,
    /// Why there is no measurement.
    pub refusal: Option<String>,
}

/// Returns the scenarios of a report, in the order of measuring.
pub fn scenarios(report: &Report) -> Vec<String> {
    unique(report.samples.iter().map(|sample| &sample.scenario))
}

/// Returns the rows of one scenario.
pub fn rows(report: &Report, scenario: &str) -> Vec<Row> {
    let samples: Vec<&Sample> = report.samples.iter().filter(|sample| sample.scenario == scenario).collect();
    unique(samples.iter().map(|sample| &sample.workload))
        .iter()
        .map(|workload| row(report, &samples, workload))
        .collect()
}

fn row(report: &Report, samples: &[&Sample], workload: &str) -> Row {
    let of = |daemon: &str| -> Vec<&Sample> {
        samples.iter().filter(|sample| sample.workload == workload && sample.daemon == daemon).copied().collect()
    };
    let names: Vec<&str> = report.daemons.iter().map(|daemon| daemon.name.as_str()).collect();
    let against = |value: fn(&Measure) -> Option<f64>, invert: bool| {
        names.iter().skip(1).map(|other| ratio(&pairs(&of(names[0]), &of(other), value, invert))).collect()
    };
    let cells: Vec<Cell> = names.iter().chain(&[HOST]).map(|name| cell(&of(name))).collect();
    let host = cells.last().and_then(|host| host.ops_per_s);
    Row {
        workload: workload.to_owned(),
        bytes_per_op: samples
            .iter()
            .filter(|sample| sample.workload == workload)
            .find_map(|sample| Some(sample.measure.as_ref()?.bytes_per_op))
            .unwrap_or(0),
        host: cells[0].ops_per_s.zip(host).map(|(ours, host)| ours / host),
        cells,
        speed: against(|measure| Some(measure.ops_per_s), false),
        cpu: against(|measure| measure.daemon_cpu_ns_per_op, true),
    }
}

fn cell(samples: &[&Sample]) -> Cell {
    let measures: Vec<&Measure> = samples.iter().filter_map(|sample| sample.measure.as_ref()).collect();
    let of = |value: fn(&Measure) -> f64| measures.iter().copied().map(value).collect::<Vec<f64>>();
    let speeds = of(|measure| measure.ops_per_s);
    let cpu: Vec<f64> = measures.iter().filter_map(|measure| measure.daemon_cpu_ns_per_op).collect();
    Cell {
        ops_per_s: statistics::median(&speeds),
        spread: statistics::relative_spread(&speeds),
        p50_ns: statistics::median(&of(|measure| measure.latency_p50_ns)),
        p99_ns: statistics::median(&of(|measure| measure.latency_p99_ns)),
        cpu_ns_per_op: statistics::median(&cpu),
        refusal: samples.iter().find_map(|sample| sample.refusal.clone()),
    }
}

/// Returns first over second, or second over first if `invert`, for each round in which both were measured.
fn pairs(first: &[&Sample], second: &[&Sample], value: fn(&Measure) -> Option<f64>, invert: bool) -> Vec<f64> {
    let of = |sample: &Sample| sample.measure.as_ref().and_then(value);
    first
        .iter()
        .filter_map(|ours| {
            let theirs = second.iter().find(|theirs| theirs.repetition == ours.repetition)?;
            let (ours, theirs) = (of(ours)?, of(theirs)?);
            let ratio = if invert { theirs / ours } else { ours / theirs };
            ratio.is_finite().then_some(ratio)
        })
        .collect()
}

/// The number of rows with each verdict, for the first daemon against another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Rows in which it is faster.
    pub faster: usize,
    /// Rows in which they are equal.
    pub equal: usize,
    /// Rows without a conclusion.
    pub unclear: usize,
    /// Rows in which it is slower.
    pub slower: usize,
}

impl Tally {
    /// Returns whether nothing was compared.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faster, equal, unclear, slower } = self;
        write!(f, "{faster} faster, {equal} equal, {unclear} unclear, {slower} slower")
    }
}

/// Counts the verdicts against daemon `index + 1` of the report.
pub fn tally(rows: &[Row], index: usize) -> Tally {
    let count = |verdict| rows.iter().filter_map(|row| row.speed[index]).filter(|r| r.verdict == verdict).count();
    Tally {
        faster: count(Verdict::Better),
        equal: count(Verdict::Equal),
        unclear: count(Verdict::Unclear),
        slower: count(Verdict::Worse),
    }
}

fn ratio(pairs: &[f64]) -> Option<Ratio> {
    let median = statistics::median(pairs)?;
    Some(judge(median, statistics::median_interval(pairs)))
}

/// Returns the conclusion from a ratio with this interval.
pub(super) fn judge(median: f64, interval: Option<(f64, f64)>) -> Ratio {
    let verdict = match interval {
        Some((low, high)) if low > 1.0 - EQUAL_WITHIN && high < 1.0 + EQUAL_WITHIN => Verdict::Equal,
        Some((low, _)) if low > 1.0 && median > 1.0 + EQUAL_WITHIN => Verdict::Better,
        Some((_, high)) if high < 1.0 && median < 1.0 - EQUAL_WITHIN => Verdict::Worse,
        _ => Verdict::Unclear,
    };
    Ratio { median, interval, verdict }
}

fn unique<'a>(names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let mut unique: Vec<String> = Vec::new();
    for name in names {
        if !unique.contains(name) {
            unique.push(name.clone());
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(pairs: &[f64]) -> Verdict {
        ratio(pairs).unwrap().verdict
    }

    #[test]
    fn a_difference_larger_than_the_spread_is_called() {
        assert_eq!(verdict(&[1.2, 1.3, 1.25, 1.22, 1.4]), Verdict::Better);
        assert_eq!(verdict(&[0.8, 0.7, 0.85, 0.9, 0.75]), Verdict::Worse);
    }

    #[test]
    fn a_spread_that_drowns_the_difference_is_not() {
        assert_eq!(verdict(&[1.2, 0.9, 1.25, 1.1, 1.3]), Verdict::Unclear);
    }

    #[test]
    fn four_rounds_are_too_few() {
        assert_eq!(verdict(&[1.2, 1.2, 1.2, 1.2]), Verdict::Unclear);
    }

    #[test]
    fn the_same_within_three_in_a_hundred_is_equal() {
        assert_eq!(verdict(&[1.0, 1.01, 0.99, 1.02, 0.98]), Verdict::Equal);
    }
}
