//! The report for a terminal: the comparison and what else matters, in few columns.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets::NOTHING};

use super::{
    HOST, Report,
    compare::{Ratio, Row, Verdict, rows, scenarios, tally},
    numbers::{duration, rate},
};

/// Renders `report`, with the notes last.
pub fn console(report: &Report) -> String {
    let mut text = String::new();
    for scenario in scenarios(report) {
        let rows = rows(report, &scenario);
        text.push_str(&format!("\n{scenario}\n{}\n", table(report, &rows)));
        for (index, other) in report.daemons.iter().skip(1).enumerate() {
            let tally = tally(&rows, index);
            if tally.is_empty() {
                continue;
            }
            text.push_str(&format!("{} against {}: {tally}\n", report.daemons[0].name, other.name));
        }
    }
    let refused = refusals(report);
    if !refused.is_empty() {
        text.push_str(&format!("\n{}\n", refused.join("\n")));
    }
    if !report.notes.is_empty() {
        text.push_str(&format!("\n{}\n", report.notes.join("\n")));
    }
    text
}

fn table(report: &Report, rows: &[Row]) -> Table {
    let has_host = rows.iter().any(|row| row.cells.last().is_some_and(|host| host.ops_per_s.is_some()));
    let ours = &report.daemons[0].name;
    // A daemon that was not measured in this scenario needs no column.
    let others: Vec<usize> = (1..report.daemons.len())
        .filter(|&index| rows.iter().any(|row| row.cells[index].ops_per_s.is_some()))
        .collect();
    let mut header = vec![String::new(), ours.clone(), "p50".into(), "p99".into()];
    header.extend(others.iter().map(|&index| format!("over {}", report.daemons[index].name)));
    header.extend(has_host.then(|| format!("over {HOST}")));
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header);
    for row in rows {
        let cell = &row.cells[0];
        let mut line = vec![row.workload.clone()];
        line.push(cell.ops_per_s.map_or("-".into(), |ops_per_s| rate(ops_per_s, row.bytes_per_op)));
        line.extend([cell.p50_ns, cell.p99_ns].map(|ns| ns.map_or("-".into(), duration)));
        line.extend(others.iter().map(|&index| ratio(row.speed[index - 1])));
        if has_host {
            line.push(row.host.map_or("-".into(), |share| format!("{share:.2}")));
        }
        table.add_row(line);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn ratio(ratio: Option<Ratio>) -> String {
    let Some(Ratio { median, interval, verdict }) = ratio else { return "-".into() };
    let Some((low, high)) = interval else { return "too few rounds".into() };
    match verdict {
        Verdict::Better => format!("{median:.2}  {low:.2}-{high:.2} +"),
        Verdict::Worse => format!("{median:.2}  {low:.2}-{high:.2} -"),
        Verdict::Equal => format!("same  {low:.2}-{high:.2}  "),
        Verdict::Unclear => format!("unclear  {low:.2}-{high:.2}  "),
    }
}

/// Returns what was refused, one line for each daemon and reason.
pub(super) fn refusals(report: &Report) -> Vec<String> {
    let mut refused: Vec<(String, Vec<&str>)> = Vec::new();
    for sample in &report.samples {
        let Some(reason) = &sample.refusal else { continue };
        let why = format!("refused by {} ({}), {reason}", sample.daemon, sample.scenario);
        let at = refused.iter().position(|(other, _)| *other == why).unwrap_or(refused.len());
        if at == refused.len() {
            refused.push((why, Vec::new()));
        }
        let workloads = &mut refused[at].1;
        if !workloads.contains(&sample.workload.as_str()) {
            workloads.push(&sample.workload);
        }
    }
    refused.into_iter().map(|(why, workloads)| format!("{why}: {}", workloads.join("; "))).collect()
}
