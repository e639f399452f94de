//! The report as one self-contained HTML page with plots.
//!
//! It is readable without colour (faster is filled, slower hatched, unclear hollow, and each is also stated in words),
//! in dark mode, and on a phone, where labels stand above bars and tables scroll. [`bars`] shows the ratios, [`curves`]
//! the latencies by percentile, [`histogram`] individual faults, and [`table`] the figures.

mod bars;
mod curves;
mod histogram;
mod table;

use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use bars::Quantity;

use super::{
    Report,
    compare::{Row, Verdict, rows, scenarios, tally},
    console::refusals,
    numbers::number,
};

const STYLE: &str = include_str!("style.css");

/// Renders `report`.
pub fn html(report: &Report) -> String {
    let scenarios: Vec<(String, Vec<Row>)> =
        scenarios(report).into_iter().map(|scenario| (scenario.clone(), rows(report, &scenario))).collect();
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (report.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                (bars::patterns())
                header {
                    h1 { (report.title) }
                    p { (facts(report)) }
                    ul class="daemons" {
                        @for daemon in &report.daemons {
                            li { b { (daemon.name) } ": " (daemon.version) " " code { (daemon.args.join(" ")) } }
                        }
                    }
                }
                main {
                    (overview(report, &scenarios))
                    @for (number, (scenario, rows)) in scenarios.iter().enumerate() {
                        (section(report, number, scenario, rows))
                    }
                    (notes(report))
                    (how_to_read())
                }
            }
        }
    };
    page.into_string()
}

fn facts(report: &Report) -> String {
    let facts = &report.facts;
    let guest = facts.guest_kernel.as_ref().map(|kernel| format!(", guest {kernel}")).unwrap_or_default();
    format!(
        "{}; {} cores of {}, {} MiB; Linux {}{guest}; shared: {}",
        facts.date,
        facts.cores,
        facts.processor,
        number(facts.memory_mib as f64),
        facts.kernel,
        facts.shared_file_system
    )
}

/// Renders the tallies and the extreme workloads.
fn overview(report: &Report, scenarios: &[(String, Vec<Row>)]) -> Markup {
    let ours = &report.daemons[0].name;
    markup! {
        section {
            h2 { "In short" }
            @if report.daemons.len() > 1 { (bars::legend(Quantity::Speed)) }
            @for (index, other) in report.daemons.iter().skip(1).enumerate() {
                h3 { (ours) " against " (other.name) }
                @for (number, (scenario, rows)) in scenarios.iter().enumerate() {
                    @let tally = tally(rows, index);
                    @if !tally.is_empty() {
                        div class="short" {
                            div { a href={ "#s" (number) } { (scenario) } }
                            (bars::tally(&tally))
                            (extremes(rows, index))
                        }
                    }
                }
            }
            @if report.daemons.len() == 1 { p { "One daemon: there is nothing to compare it with but the host." } }
        }
    }
}

/// Renders the workloads with the best and the worst ratio.
fn extremes(rows: &[Row], index: usize) -> Markup {
    let decided = |verdict| {
        let rows = rows.iter().filter_map(move |row| Some((row, row.speed[index]?)));
        rows.filter(move |(_, ratio)| ratio.verdict == verdict)
    };
    let best = decided(Verdict::Better).max_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let worst = decided(Verdict::Worse).min_by(|a, b| a.1.median.total_cmp(&b.1.median));
    markup! {
        p class="extremes" {
            @if let Some((row, ratio)) = best { "Furthest ahead: " b { (row.workload) } " " (times(ratio.median)) ". " }
            @match worst {
                Some((row, ratio)) => { "Furthest behind: " b { (row.workload) } " " (times(ratio.median)) "." }
                None => { "Nowhere clearly behind." }
            }
        }
    }
}

/// Formats a ratio: `2.13×`.
fn times(ratio: f64) -> String {
    format!("{ratio:.2}×")
}

fn section(report: &Report, number: usize, scenario: &str, rows: &[Row]) -> Markup {
    let ours = &report.daemons[0].name;
    markup! {
        section id={ "s" (number) } {
            h2 { (scenario) }
            @for (index, other) in report.daemons.iter().skip(1).enumerate() {
                @let against = format!("{ours} over {}", other.name);
                (bars::ratios(rows, index, Quantity::Speed, &format!("Speed, {against}")))
                @let cost = format!("The daemon's processor time a request, {against}");
                (bars::ratios(rows, index, Quantity::ProcessorTime, &cost))
            }
            (bars::host(rows, ours))
            details open[number == 0] { summary { "Figures" } (table::figures(report, rows)) }
            (histogram::faults(report, scenario, rows))
            (curves::curves(report, scenario, rows))
        }
    }
}

fn notes(report: &Report) -> Markup {
    let refused = refusals(report);
    markup! {
        section {
            h2 { "What to know" }
            @if !report.notes.is_empty() || !refused.is_empty() {
                ul { @for note in report.notes.iter().chain(&refused) { li { (note) } } }
            }
            @if !report.limits.is_empty() {
                h3 { "What the machine itself can do" }
                div class="scroll" {
                    table {
                        tbody {
                            @for limit in &report.limits { tr { th { (limit.name) } td { (number(limit.value)) } } }
                        }
                    }
                }
            }
            h3 { "Command" }
            pre { (report.command.join(" ")) }
        }
    }
}

fn how_to_read() -> Markup {
    markup! {
        section {
            h2 { "How to read it" }
            p {
                "Ratios are computed for each round from samples close in time. Above 1, the first daemon is faster, \
                 or takes more processor time. The line over a bar is the range that contains the true median in at \
                 least 93 of 100 cases, by ranks. "
                b { "Same" } ": the range lies within 3 % of 1. "
                b { "Unclear" } ": the range contains 1 and is wider than that, or there were fewer than five rounds; \
                 no ratio is shown. Figures are medians over the rounds, ± the median distance from the median. \
                 Latencies are of all rounds together."
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn the_page_has_nothing_from_elsewhere_and_escapes_what_others_say() {
        let mut report = example::report();
        report.notes.push("<script>alert(1)</script>".into());
        let page = html(&report);
        for word in ["http:", "https:", "src=", "@import", "<script", "url(\"", "url('"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn processor_time_is_drawn_beside_speed() {
        let page = html(&example::report());
        // The example's daemons take half of an operation's time: what is twice as fast takes half the processor time.
        let (_, drawn) = page.split_once("processor time a request, ours over theirs").expect("a heading");
        let (bars, _) = drawn.split_once("</section>").unwrap();
        assert!(bars.contains("0.50×"), "{bars}");
        assert!(bars.contains("2.00× more"), "{bars}");
        assert!(!page.contains("processor time a request, ours over absent"), "a heading without rows");
    }

    #[test]
    fn a_ratio_that_its_spread_drowns_is_not_told() {
        let page = html(&example::report());
        // 2.00 is clear, 1.20 is not.
        assert!(page.contains("2.00×"), "the clear ratio is missing");
        assert!(!page.contains("1.20×"), "a ratio is shown that its spread hides");
        assert!(page.contains("unclear"));
    }
}
