//! Individual page faults, counted by doublings of time: bars for each daemon.

use maud::{Markup, html as markup};

use super::curves::counts;
use crate::report::{HOST, Report, compare::Row};

/// The prefix of workloads that measure individual faults.
const BEGINNING: &str = "fault_";

/// Renders the histograms of a scenario, if it has faults.
pub(super) fn faults(report: &Report, scenario: &str, rows: &[Row]) -> Markup {
    let names: Vec<&str> = report.daemons.iter().map(|daemon| daemon.name.as_str()).chain([HOST]).collect();
    markup! {
            @for row in rows.iter().filter(|row| row.workload.starts_with(BEGINNING)) {
                details {
                    summary { "Histogram: " (row.workload) }
                    div class="plots" {
                        @for name in &names {
                            @let octaves = octaves(report, scenario, &row.workload, name);
                            @let total = octaves.iter().map(|octave| octave.1).sum::<u64>().max(1) as f64;
                            @if !octaves.is_empty() {
                                figure {
                                    figcaption { (name) }
                                    table { tbody {
                                        @for (log2, count) in octaves {
                                            @let share = count as f64 / total * 100.0;
                                            tr {
                                                th { (range(log2)) }
                                                td style="width: 50%" {
                                                    svg class="track" aria-hidden="true" {
                                                        rect class="ahead" x="0" y="4" height="11"
    width={ (format!("{share:.1}%")) } {}
                                                    }
                                                }
                                                td { (count) }
                                            }
                                        }
                                    } }
                                }
                            }
                        }
                    }
                }
            }
        }
}

/// Returns counts by the base-2 logarithm of the time in microseconds, rounded up.
fn octaves(report: &Report, scenario: &str, workload: &str, daemon: &str) -> Vec<(i32, u64)> {
    let mut octaves: Vec<(i32, u64)> = Vec::new();
    for class in counts(report, scenario, workload, daemon) {
        let log2 = (class.below_ns as f64 / 1e3).log2().ceil() as i32;
        match octaves.last_mut() {
            Some(last) if last.0 == log2 => last.1 += class.count,
            _ => octaves.push((log2, class.count)),
        }
    }
    octaves
}

fn range(log2: i32) -> String {
    match log2 {
        ..=0 => "below 1 µs".to_owned(),
        1..=9 => format!("{} to {} µs", 1 << (log2 - 1), 1 << log2),
        _ => format!("{:.1} to {:.1} ms", f64::from(log2 - 1).exp2() / 1e3, f64::from(log2).exp2() / 1e3),
    }
}
