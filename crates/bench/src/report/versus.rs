//! Compares two result files: the same daemon before and after a change.
//!
//! The runs are apart in time, so rounds are not paired: the interval of the ratio comes from the intervals of both
//! medians. The change of the bare directory is shown too, as the change of the machine.

use comfy_table::{CellAlignment, Table, presets::NOTHING};

use super::{
    HOST, Report,
    compare::{Ratio, Verdict, judge},
    statistics,
};

/// One workload of one daemon in both files.
#[derive(Clone, Debug)]
pub struct Change {
    /// The guest, the placement, the cache mode.
    pub scenario: String,
    /// The workload.
    pub workload: String,
    /// The daemon.
    pub daemon: String,
    /// Operations per second, second file over first.
    pub ratio: Ratio,
}

/// Returns the changes of everything that is in both files, including the bare directory. The interval contains the
/// true ratio in at least 86 of 100 cases.
pub fn changes(before: &Report, after: &Report) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::new();
    for sample in &before.samples {
        let (scenario, workload, daemon) = (&sample.scenario, &sample.workload, &sample.daemon);
        let is_known =
            |change: &Change| (&change.scenario, &change.workload, &change.daemon) == (scenario, workload, daemon);
        if changes.iter().any(is_known) {
            continue;
        }
        let speeds = |report: &Report| -> Vec<f64> {
            let is_it = |other: &&super::Sample| {
                (&other.scenario, &other.workload, &other.daemon) == (scenario, workload, daemon)
            };
            let measures = report.samples.iter().filter(is_it).filter_map(|sample| sample.measure.as_ref());
            measures.map(|measure| measure.ops_per_s).filter(|speed| *speed > 0.0).collect()
        };
        if let Some(ratio) = ratio(&speeds(before), &speeds(after)) {
            let [scenario, workload, daemon] = [scenario, workload, daemon].map(Clone::clone);
            changes.push(Change { scenario, workload, daemon, ratio });
        }
    }
    changes
}

fn ratio(before: &[f64], after: &[f64]) -> Option<Ratio> {
    let median = statistics::median(after)? / statistics::median(before)?;
    let intervals = statistics::median_interval(before).zip(statistics::median_interval(after));
    Some(judge(median, intervals.map(|((low, high), (later_low, later_high))| (later_low / high, later_high / low))))
}

/// Renders the selected changes for a terminal, with notes on the machines.
pub fn table(before: &Report, after: &Report, changes: &[Change]) -> String {
    let mut text = String::new();
    let (old, new) = (&before.facts, &after.facts);
    if (&old.processor, old.cores, &old.kernel) != (&new.processor, new.cores, &new.kernel) {
        text.push_str(&format!(
            "The machines differ: {} cores of {}, Linux {}; then {} cores of {}, Linux {}\n",
            old.cores, old.processor, old.kernel, new.cores, new.processor, new.kernel
        ));
    }
    let host: Vec<f64> =
        changes.iter().filter(|change| change.daemon == HOST).map(|change| change.ratio.median).collect();
    if let Some(host) = statistics::median(&host) {
        text.push_str(&format!("The bare directory itself: {host:.2} (median of its workloads)\n"));
    }
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(["", "daemon", "second/first", "", ""]);
    let mut scenario = "";
    let mut shown = 0;
    for change in changes.iter().filter(|change| change.daemon != HOST) {
        if scenario != change.scenario {
            scenario = &change.scenario;
            table.add_row([scenario, "", "", "", ""]);
        }
        let brackets =
            change.ratio.interval.map_or("too few rounds".into(), |(low, high)| format!("{low:.2}-{high:.2}"));
        let word = match change.ratio.verdict {
            Verdict::Better => "faster",
            Verdict::Worse => "slower",
            Verdict::Equal => "same",
            Verdict::Unclear => "unclear",
        };
        // A ratio that its spread hides is not shown.
        let median = match change.ratio.verdict {
            Verdict::Unclear => String::new(),
            _ => format!("{:.2}", change.ratio.median),
        };
        table.add_row([format!("  {}", change.workload), change.daemon.clone(), median, brackets, word.to_owned()]);
        shown += 1;
    }
    for column in table.column_iter_mut().skip(2).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if shown == 0 {
        text.push_str("The files have no scenario, workload and daemon in common.\n");
        return text;
    }
    text.push_str(&format!("{table}\n"));
    let count = |verdict| changes.iter().filter(|c| c.daemon != HOST && c.ratio.verdict == verdict).count();
    text.push_str(&format!(
        "{} faster, {} the same, {} unclear, {} slower\n",
        count(Verdict::Better),
        count(Verdict::Equal),
        count(Verdict::Unclear),
        count(Verdict::Worse)
    ));
    text
}

/// Returns the changes whose whole interval is below `limit`.
pub fn below(changes: &[Change], limit: f64) -> impl Iterator<Item = &Change> {
    changes
        .iter()
        .filter(move |change| change.daemon != HOST && change.ratio.interval.is_some_and(|(_, high)| high < limit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_come_from_both_runs() {
        let steady = ratio(&[100.0, 101.0, 99.0, 100.0, 100.0], &[50.0, 51.0, 50.0, 49.0, 50.0]).unwrap();
        assert_eq!(steady.verdict, Verdict::Worse);
        let (low, high) = steady.interval.unwrap();
        assert!(low < 0.5 && 0.5 < high && high < 0.53, "{low} {high}");
        let noisy = ratio(&[100.0, 60.0, 140.0, 90.0, 120.0], &[90.0, 70.0, 130.0, 80.0, 110.0]).unwrap();
        assert_eq!(noisy.verdict, Verdict::Unclear);
    }
}
