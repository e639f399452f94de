//! Latencies by percentile: a small plot for each workload, with a distinct line for each daemon.

use std::fmt::Write;

use maud::{Markup, html as markup};

use crate::{
    report::{HOST, Report, compare::Row, numbers::duration},
    workload::line::LatencyCount,
};

/// The percentiles on the axis, chosen to give the tail room.
const QUANTILES: [f64; 5] = [0.1, 0.5, 0.9, 0.99, 0.999];
const LABELS: [&str; 5] = ["10", "50", "90", "99", "99.9"];
const DASHES: [&str; 4] = ["", "7 3", "2 3", "9 3 2 3"];
const STYLES: usize = DASHES.len();

const WIDTH: f64 = 320.0;
const HEIGHT: f64 = 190.0;
/// Left, top, right and bottom of the plot within the picture.
const PLOT: [f64; 4] = [58.0, 8.0, 308.0, 160.0];

/// Renders all plots of a scenario, collapsed.
pub(super) fn curves(report: &Report, scenario: &str, rows: &[Row]) -> Markup {
    let names: Vec<&str> = report.daemons.iter().map(|daemon| daemon.name.as_str()).chain([HOST]).collect();
    let plots: Vec<Markup> = rows.iter().filter_map(|row| plot(report, scenario, &row.workload, &names)).collect();
    markup! {
        @if !plots.is_empty() {
            details {
                summary { "Latency by percentile" }
                div class="legend" {
                    @for (index, name) in names.iter().enumerate() {
                        span {
                            svg width="44" height="14" aria-hidden="true" {
                                path class={ "c" (index % STYLES) } stroke-dasharray=(DASHES[index % STYLES])
                                    d="M2 7 H42" {}
                                (marker(index, 22.0, 7.0))
                            }
                            (name)
                        }
                    }
                }
                div class="plots" { @for plot in plots { (plot) } }
            }
        }
    }
}

/// Returns the latency counts over all rounds.
pub(super) fn counts(report: &Report, scenario: &str, workload: &str, daemon: &str) -> Vec<LatencyCount> {
    let mut all: Vec<LatencyCount> = Vec::new();
    let is_it = |sample: &&crate::report::Sample| {
        sample.scenario == scenario && sample.workload == workload && sample.daemon == daemon
    };
    for measure in report.samples.iter().filter(is_it).filter_map(|sample| sample.measure.as_ref()) {
        for class in &measure.latency_counts {
            match all.iter_mut().find(|other| other.below_ns == class.below_ns) {
                Some(other) => other.count = other.count.saturating_add(class.count),
                None => all.push(*class),
            }
        }
    }
    all.sort_by_key(|class| class.below_ns);
    all
}

/// Returns the end of the class that contains the quantile; `None` if there are no counts.
fn quantile(counts: &[LatencyCount], quantile: f64) -> Option<f64> {
    let total: u64 = counts.iter().map(|class| class.count).fold(0, u64::saturating_add);
    let rank = quantile * total as f64;
    let mut passed = 0.0;
    counts
        .iter()
        .find(|class| {
            passed += class.count as f64;
            passed >= rank
        })
        .map(|class| class.below_ns as f64)
}

fn plot(report: &Report, scenario: &str, workload: &str, names: &[&str]) -> Option<Markup> {
    let lines: Vec<(usize, Vec<f64>)> = names
        .iter()
        .enumerate()
        .filter_map(|(index, name)| {
            let counts = counts(report, scenario, workload, name);
            let values: Option<Vec<f64>> = QUANTILES.iter().map(|q| quantile(&counts, *q)).collect();
            Some((index, values?))
        })
        .collect();
    let all = || lines.iter().flat_map(|(_, values)| values.iter().copied());
    let low_log10 = all().reduce(f64::min)?.max(1.0).log10().floor();
    let high_log10 = all().reduce(f64::max)?.log10().ceil().max(low_log10 + 1.0);
    let [left, top, right, bottom] = PLOT;
    let x = |index: usize| left + (right - left) * index as f64 / (QUANTILES.len() - 1) as f64;
    let y = |ns: f64| bottom - (ns.log10() - low_log10) / (high_log10 - low_log10) * (bottom - top);
    Some(markup! {
        figure {
            figcaption { (workload) }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img"
                aria-label={ "latency of " (workload) " by percentile" } {
                @for power in low_log10 as i32..=high_log10 as i32 {
                    @let ns = 10f64.powi(power);
                    line class="grid" x1=(left) x2=(right) y1=(y(ns)) y2=(y(ns)) {}
                    text x=(left - 6.0) y=(y(ns) + 4.0) text-anchor="end" { (unit(ns)) }
                }
                @for (index, label) in LABELS.iter().enumerate() {
                    text x=(x(index)) y=(bottom + 20.0)
                        text-anchor=(if index + 1 == LABELS.len() { "end" } else { "middle" }) {
                        (label) @if index + 1 == LABELS.len() { " %" }
                    }
                }
                @for (index, values) in &lines {
                    path class={ "c" (index % STYLES) } stroke-dasharray=(DASHES[index % STYLES])
                        d=(path(values, x, y)) {
                        title { (names[*index]) ": " (told(values)) }
                    }
                    @for (place, ns) in values.iter().enumerate() { (marker(*index, x(place), y(*ns))) }
                }
            }
        }
    })
}

fn path(values: &[f64], x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
    let mut path = String::new();
    for (index, ns) in values.iter().enumerate() {
        let letter = if index == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x(index), y(*ns));
    }
    path
}

fn told(values: &[f64]) -> String {
    let pairs = LABELS.iter().zip(values).map(|(label, ns)| format!("{label} % {}", duration(*ns)));
    pairs.collect::<Vec<_>>().join(", ")
}

/// Formats a power of ten.
fn unit(ns: f64) -> String {
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.0} µs", ns / 1e3),
        _ if ns < 1e9 => format!("{:.0} ms", ns / 1e6),
        _ => format!("{:.0} s", ns / 1e9),
    }
}

/// Renders a distinct shape for each daemon.
fn marker(index: usize, x: f64, y: f64) -> Markup {
    let class = format!("marker c{}", index % STYLES);
    markup! {
        @match index % STYLES {
            0 => circle class=(class) cx=(x) cy=(y) r="3.5" {},
            1 => rect class=(class) x=(x - 3.2) y=(y - 3.2) width="6.4" height="6.4" {},
            2 => polygon class=(class)
                points={ (x) "," (y - 4.2) " " (x + 4.0) "," (y + 3.2) " " (x - 4.0) "," (y + 3.2) } {},
            _ => polygon class=(class)
                points={ (x) "," (y - 4.2) " " (x + 4.2) "," (y) " " (x) "," (y + 4.2) " " (x - 4.2) "," (y) } {},
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_come_from_classes() {
        let counts = [(1024, 50), (2048, 40), (4096, 10)].map(|(below_ns, count)| LatencyCount { below_ns, count });
        assert_eq!(quantile(&counts, 0.5), Some(1024.0));
        assert_eq!(quantile(&counts, 0.9), Some(2048.0));
        assert_eq!(quantile(&counts, 0.99), Some(4096.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
