//! The report as Markdown: facts, limits, and one table for each scenario.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use super::{
    HOST, Report,
    compare::{Ratio, Row, Verdict, rows, scenarios, tally},
    numbers::{duration, number, speed},
};

/// Renders `report`.
pub fn markdown(report: &Report) -> String {
    let mut text = format!("# {}\n\n", report.title);
    facts(report, &mut text);
    for scenario in scenarios(report) {
        let rows = rows(report, &scenario);
        let _ = write!(text, "\n## {scenario}\n\n{}\n\n{}\n", summary(report, &rows), table(report, &rows));
    }
    text.push_str(LEGEND);
    text
}

const LEGEND: &str = "
## How to read it

Figures are medians over the rounds; `±` is the median distance from the median. A ratio is computed for each round from
samples close in time, first daemon over the other. Its brackets contain the true median in at least 93 of 100 cases, by
ranks. `≈`: the brackets lie within 3 % of 1. `unclear`: the brackets contain 1 and are wider than that, or there were
fewer than five rounds, so that nothing is claimed. Daemon CPU is user and system time of the daemon's processes per
operation; its ratio is above 1 if the first daemon needs less.
";

fn facts(report: &Report, text: &mut String) {
    let facts = &report.facts;
    let _ = writeln!(text, "    {}\n", report.command.join(" "));
    let _ = writeln!(text, "- {}, {} cores of {}, {} MiB", facts.date, facts.cores, facts.processor, facts.memory_mib);
    let guest = facts.guest_kernel.as_ref().map(|kernel| format!(", guest {kernel}")).unwrap_or_default();
    let _ = writeln!(text, "- Linux {}{guest}; shared: {}", facts.kernel, facts.shared_file_system);
    for daemon in &report.daemons {
        let args = if daemon.args.is_empty() { String::new() } else { format!(" `{}`", daemon.args.join(" ")) };
        let _ = writeln!(text, "- {}: {}{args}", daemon.name, daemon.version);
    }
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    if !report.limits.is_empty() {
        let mut table = markdown_table();
        table.set_header(["limit of the machine", "value"]);
        for limit in &report.limits {
            table.add_row([limit.name.clone(), number(limit.value)]);
        }
        right_aligned(&mut table);
        let _ = writeln!(text, "\n{table}");
    }
}

/// Returns a summary of the verdicts.
fn summary(report: &Report, rows: &[Row]) -> String {
    let mut parts = Vec::new();
    for (index, other) in report.daemons.iter().skip(1).enumerate() {
        let tally = tally(rows, index);
        if !tally.is_empty() {
            parts.push(format!("{} against {}: {tally}.", report.daemons[0].name, other.name));
        }
    }
    parts.join(" ")
}

fn table(report: &Report, rows: &[Row]) -> Table {
    let has_host = rows.iter().any(|row| row.cells.last().is_some_and(|host| host.ops_per_s.is_some()));
    let names: Vec<&str> = report.daemons.iter().map(|daemon| daemon.name.as_str()).collect();
    let mut header = vec!["workload".to_owned()];
    header.extend(names.iter().map(|name| (*name).to_owned()));
    header.extend(has_host.then(|| HOST.to_owned()));
    for other in &names[1..] {
        header.push(format!("speed, {}/{other}", names[0]));
    }
    header.extend(names.iter().map(|name| format!("CPU/op, {name}")));
    for other in &names[1..] {
        header.push(format!("CPU, {other}/{}", names[0]));
    }

    let mut table = markdown_table();
    table.set_header(header);
    for row in rows {
        let mut line = vec![row.workload.clone()];
        let shown = names.len() + usize::from(has_host);
        line.extend(row.cells.iter().take(shown).map(|cell| speed(cell, row.bytes_per_op)));
        line.extend(row.speed.iter().map(|ratio| ratio_text(*ratio)));
        line.extend(row.cells.iter().take(names.len()).map(|cell| cell.cpu_ns_per_op.map_or("-".into(), duration)));
        line.extend(row.cpu.iter().map(|ratio| ratio_text(*ratio)));
        table.add_row(line);
    }
    right_aligned(&mut table);
    table
}

fn markdown_table() -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table
}

fn right_aligned(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn ratio_text(ratio: Option<Ratio>) -> String {
    let Some(ratio) = ratio else { return "-".into() };
    let brackets = ratio.interval.map(|(low, high)| format!(" [{low:.2}, {high:.2}]")).unwrap_or_default();
    match ratio.verdict {
        Verdict::Better => format!("**{:.2}**{brackets}", ratio.median),
        Verdict::Worse => format!("{:.2}{brackets} ↓", ratio.median),
        Verdict::Equal => format!("≈{brackets}"),
        Verdict::Unclear => format!("unclear{brackets}"),
    }
}
