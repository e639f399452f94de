//! A small picture of a report: the first daemon's ratios as one SVG image that stands alone.
//!
//! Each line is a scenario against one other daemon; each workload is a mark at its ratio on a logarithmic axis. Marks
//! of one line that would cover each other are stacked. The colours and the fills are readable on a light and on a dark
//! page.

use maud::{Markup, PreEscaped, html as markup};

use super::{
    Report,
    compare::{Ratio, Verdict, rows, scenarios},
};

const WIDTH: f64 = 720.0;
/// Where the axis begins and ends.
const AXIS: (f64, f64) = (280.0, 700.0);
const HEAD: f64 = 26.0;
const RADIUS: f64 = 4.0;
/// Distance of stacked marks.
const STACK: f64 = 9.0;
/// Marks of one stack, at most; more overlap.
const STACK_MAX: usize = 5;
const LINE: f64 = 56.0;

const STYLE: &str = "text { font: 12px system-ui, sans-serif; fill: #57606a } \
    .axis { stroke: #8b949e; stroke-width: .5 } .one { stroke: #57606a } \
    .faster { fill: #0b8a5f } .slower { fill: #d1372c } .same { fill: #8b949e } \
    .unclear { fill: none; stroke: #8b949e }";

/// The ratios of one scenario against one other daemon.
struct Strip {
    scenario: String,
    against: String,
    ratios: Vec<(String, Ratio)>,
}

/// Renders `report`. Returns `None` if it compares nothing.
pub fn picture(report: &Report) -> Option<String> {
    let strips = strips(report);
    let medians = || strips.iter().flat_map(|strip| &strip.ratios).map(|(_, ratio)| ratio.median.log2());
    let low_log2 = medians().map(f64::floor).fold(-1.0, f64::min);
    let high_log2 = medians().map(f64::ceil).fold(1.0, f64::max);
    let at = |log2: f64| AXIS.0 + (log2 - low_log2) / (high_log2 - low_log2) * (AXIS.1 - AXIS.0);
    let height = HEAD + LINE * strips.len() as f64 + 26.0;
    let image = markup! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (WIDTH) " " (height) } role="img"
            aria-label=(format!("{}: ratios of {}", report.title, report.daemons.first()?.name)) {
            style { (PreEscaped(STYLE)) }
            @for tick in low_log2 as i32..=high_log2 as i32 {
                @let x = at(tick.into());
                line class=(if tick == 0 { "one" } else { "axis" }) x1=(x) x2=(x) y1=(HEAD) y2=(height - 26.0) {}
                text x=(x) y="16" text-anchor="middle" { (tick_name(tick)) }
            }
            @for (index, strip) in strips.iter().enumerate() {
                (line(strip, HEAD + LINE * (index as f64 + 1.0) - 8.0, at))
            }
            (legend(height - 8.0))
        }
    };
    (!strips.is_empty()).then(|| image.into_string())
}

fn strips(report: &Report) -> Vec<Strip> {
    let mut strips = Vec::new();
    for scenario in scenarios(report) {
        let rows = rows(report, &scenario);
        for (index, other) in report.daemons.iter().skip(1).enumerate() {
            let ratios = rows.iter().filter_map(|row| Some((row.workload.clone(), row.speed[index]?)));
            let mut ratios: Vec<_> = ratios.filter(|(_, ratio)| ratio.median > 0.0).collect();
            ratios.sort_by(|a, b| a.1.median.total_cmp(&b.1.median));
            if !ratios.is_empty() {
                strips.push(Strip { scenario: scenario.clone(), against: other.name.clone(), ratios });
            }
        }
    }
    strips
}

fn line(strip: &Strip, bottom: f64, at: impl Fn(f64) -> f64) -> Markup {
    let mut marks: Vec<(f64, usize)> = Vec::new();
    for (_, ratio) in &strip.ratios {
        let x = at(ratio.median.log2());
        let below = marks.iter().rev().take_while(|mark| x - mark.0 < 2.0 * RADIUS).count();
        marks.push((x, below % STACK_MAX));
    }
    markup! {
        text x="0" y=(bottom - 18.0) { (strip.scenario) }
        text x="0" y=(bottom - 4.0) { "against " (strip.against) }
        @for ((workload, ratio), (x, level)) in strip.ratios.iter().zip(marks) {
            @let y = bottom - RADIUS - STACK * level as f64;
            circle class=(class(ratio.verdict)) cx=(format!("{x:.1}")) cy=(y) r=(RADIUS) {
                title { (workload) ": " (format!("{:.2}", ratio.median)) }
            }
        }
    }
}

fn legend(y: f64) -> Markup {
    const VERDICTS: [Verdict; 4] = [Verdict::Better, Verdict::Equal, Verdict::Unclear, Verdict::Worse];
    markup! {
        @for (index, verdict) in VERDICTS.into_iter().enumerate() {
            @let x = AXIS.0 + 90.0 * index as f64;
            circle class=(class(verdict)) cx=(x) cy=(y - RADIUS) r=(RADIUS) {}
            text x=(x + 10.0) y=(y) { (class(verdict)) }
        }
    }
}

fn class(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "faster",
        Verdict::Worse => "slower",
        Verdict::Equal => "same",
        Verdict::Unclear => "unclear",
    }
}

fn tick_name(log2: i32) -> String {
    let power = f64::from(log2.abs()).exp2();
    if log2 < 0 { format!("1/{power}") } else { format!("{power}×") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn each_compared_workload_is_a_mark_with_its_verdict() {
        let image = picture(&example::report()).unwrap();
        assert_eq!(image.matches("<title>").count(), 4, "the example compares four workloads");
        assert!(image.contains("<title>create_write_4k: 2.00</title>"));
        // One of each in the plot, and one in the legend.
        for class in ["faster", "slower", "same", "unclear"] {
            assert_eq!(image.matches(&format!("class=\"{class}\"")).count(), 2, "{class}");
        }
    }

    #[test]
    fn without_another_daemon_there_is_no_picture() {
        let mut report = example::report();
        report.daemons.truncate(1);
        assert_eq!(picture(&report), None);
    }
}
