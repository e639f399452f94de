//! The result as Markdown: instructions of all operations side by side, and a table for each operation.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

use super::{CostReport, Counts, Row};

/// A row of an operation's table.
type Line = (&'static str, fn(&Counts) -> String);

const LINES: [Line; 9] = [
    ("instructions", |counts| number(counts.instructions)),
    ("system calls", system_calls),
    ("allocations", |counts| number(counts.allocations)),
    ("bytes allocated", |counts| number(counts.allocated_bytes)),
    ("bytes copied", |counts| number(counts.copied_bytes)),
    ("clock reads", |counts| number(counts.clock_reads)),
    ("wakes", |counts| number(counts.wakes)),
    ("guest notifications", |counts| number(counts.notifications)),
    ("instructions in memory functions", |counts| number(counts.library_instructions)),
];

const LEGEND: &str = "
## How to read it

Each figure is for one operation: the median over the rounds, divided by the number of requests that arrive together.
A daemon runs instruction by instruction, one thread at a time, on a simulated clock: an instruction takes 0.5 ns, a
system call 500 ns, and the guest sends its next request 5 µs after a reply. Instructions are those in user space,
without the memory and string functions of the C library (memcpy, strlen), which it selects by processor; the last
line counts those. Bytes copied are those of calls of memcpy, memmove and mempcpy; inlined copies and copies in the
kernel are not seen. Allocations are calls of malloc, calloc, realloc and the like. Reads of a clock do not count as
system calls. Wakes are threads woken by a futex, and writes to eventfds other than the guest's.
";

/// Renders `report`.
pub fn markdown(report: &CostReport) -> String {
    let facts = &report.facts;
    let mut text = format!("# The cost of a request\n\n    {}\n\n", report.command.join(" "));
    let _ = writeln!(
        text,
        "- {}, {}, Linux {}; shared: {}",
        facts.date, facts.processor, facts.kernel, facts.shared_file_system
    );
    for daemon in &report.daemons {
        let args = if daemon.args.is_empty() { String::new() } else { format!(" `{}`", daemon.args.join(" ")) };
        let _ = writeln!(text, "- {}: {}{args}", daemon.name, daemon.version);
    }
    let depths = unique(report.rows.iter().map(|row| row.depth));
    for depth in depths {
        let rows: Vec<&Row> = report.rows.iter().filter(|row| row.depth == depth).collect();
        let title = if depth == 1 { "One request at a time".to_owned() } else { format!("{depth} requests at once") };
        let _ = writeln!(
            text,
            "\n## {title}\n\nInstructions:\n\n{}",
            overview(&rows, |counts| number(counts.instructions))
        );
        let calls = overview(&rows, |counts| number(counts.all_system_calls()));
        let _ = writeln!(text, "\nSystem calls:\n\n{calls}");
        let _ = writeln!(text, "\nAllocations:\n\n{}", overview(&rows, |counts| number(counts.allocations)));
        for operation in unique(rows.iter().map(|row| row.operation.as_str())) {
            let of_operation: Vec<&Row> = rows.iter().copied().filter(|row| row.operation == operation).collect();
            let _ = writeln!(text, "\n### {operation}, {}\n\n{}", title.to_lowercase(), details(&of_operation));
        }
    }
    text.push_str(LEGEND);
    text
}

fn overview(rows: &[&Row], cell: impl Fn(&Counts) -> String) -> Table {
    let daemons = unique(rows.iter().map(|row| row.daemon.as_str()));
    let mut table = table(&[&["operation"], &*daemons].concat());
    for operation in unique(rows.iter().map(|row| row.operation.as_str())) {
        let find = |daemon: &&str| rows.iter().find(|row| row.operation == operation && row.daemon == *daemon);
        let cells = daemons.iter().map(|daemon| find(daemon).map_or_else(String::new, |row| cell(&row.counts)));
        table.add_row(std::iter::once(operation.to_owned()).chain(cells));
    }
    right_aligned(table)
}

fn details(rows: &[&Row]) -> Table {
    let daemons: Vec<&str> = rows.iter().map(|row| row.daemon.as_str()).collect();
    let mut table = table(&[&["for one operation"], &*daemons].concat());
    for (name, cell) in LINES {
        table.add_row(std::iter::once(name.to_owned()).chain(rows.iter().map(|row| cell(&row.counts))));
    }
    right_aligned(table)
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN);
    table.set_header(header.iter().copied());
    table
}

fn right_aligned(mut table: Table) -> Table {
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

fn system_calls(counts: &Counts) -> String {
    let names = counts.system_calls.iter().map(|(name, count)| match *count {
        1.0 => name.clone(),
        count => format!("{} {name}", number(count)),
    });
    match counts.system_calls.is_empty() {
        true => "0".to_owned(),
        false => format!("{}: {}", number(counts.all_system_calls()), names.collect::<Vec<_>>().join(", ")),
    }
}

/// A whole number as it is, another one with two digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 || value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn unique<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut unique = Vec::new();
    for value in values {
        if !unique.contains(&value) {
            unique.push(value);
        }
    }
    unique
}
