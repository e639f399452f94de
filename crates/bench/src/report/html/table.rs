//! The figures of a scenario.

use maud::{Markup, html as markup};

use crate::report::{
    HOST, Report,
    compare::{Cell, Row},
    numbers::{duration, rate},
};

pub(super) fn figures(report: &Report, rows: &[Row]) -> Markup {
    let names: Vec<&str> = report.daemons.iter().map(|daemon| daemon.name.as_str()).chain([HOST]).collect();
    markup! {
        div class="scroll" {
            table {
                thead {
                    tr {
                        th {}
                        @for name in &names { th { (name) } }
                        @for name in &names[..names.len() - 1] { th { "p50 / p99, " (name) } }
                        @for name in &names[..names.len() - 1] { th { "CPU/op, " (name) } }
                    }
                }
                tbody {
                    @for row in rows {
                        tr {
                            th { (row.workload) }
                            @for cell in &row.cells { td { (speed(cell, row.bytes_per_op)) } }
                            @for cell in &row.cells[..names.len() - 1] { td { (latency(cell)) } }
                            @for cell in &row.cells[..names.len() - 1] {
                                td { (cell.cpu_ns_per_op.map_or("-".into(), duration)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn speed(cell: &Cell, bytes_per_op: u64) -> String {
    match (cell.ops_per_s, &cell.refusal) {
        (Some(ops_per_s), _) => {
            let spread = cell.spread.map(|spread| format!(" ±{:.0}%", spread * 100.0)).unwrap_or_default();
            format!("{}{spread}", rate(ops_per_s, bytes_per_op))
        }
        (None, Some(_)) => "refused".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

fn latency(cell: &Cell) -> String {
    cell.p50_ns.zip(cell.p99_ns).map_or("-".into(), |(p50, p99)| format!("{} / {}", duration(p50), duration(p99)))
}
