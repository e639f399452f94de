//! Two readings of a daemon as lines of text: a head with its state, then a row for each operation.

use std::{cmp::Reverse, collections::HashMap};

use comfy_table::{CellAlignment, Table, presets::NOTHING};
use transom_guest::dax::RANGE_LEN;
use transom_metrics::{
    OperationReport, ReplayReport, Report, WindowReport,
    families::{self, Family},
};

use super::source::Source;

const MIB: f64 = 1_048_576.0;

/// A line, with what a terminal emphasises.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) text: String,
    pub(super) emphasis: Emphasis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Emphasis {
    None,
    /// The names of a daemon and of columns.
    Heading,
    /// What is wrong.
    Problem,
}

/// What the rows are sorted by, the largest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Rate,
    Total,
    P99,
    Errors,
    Name,
}

impl Sort {
    pub(super) const fn next(self) -> Self {
        match self {
            Self::Rate => Self::Total,
            Self::Total => Self::P99,
            Self::P99 => Self::Errors,
            Self::Errors => Self::Name,
            Self::Name => Self::Rate,
        }
    }

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Total => "total",
            Self::P99 => "p99",
            Self::Errors => "errors",
            Self::Name => "name",
        }
    }
}

/// All that is shown of one daemon.
pub(super) fn block(source: &Source, sort: Sort) -> Vec<Line> {
    let path = printable(&source.path().to_string_lossy());
    let mut lines = Vec::new();
    let Some((now, before)) = source.readings() else {
        lines.push(Line { text: path, emphasis: Emphasis::Heading });
        lines.extend(problem(source));
        return lines;
    };
    lines.push(Line {
        text: format!("{path}   transomd {}, up {}", printable(&now.version), uptime(now.uptime_seconds)),
        emphasis: Emphasis::Heading,
    });
    lines.extend(problem(source));
    lines.extend(report(now, before, sort));
    lines
}

fn problem(source: &Source) -> Option<Line> {
    let text = format!("{}; waiting for the daemon to come back", printable(source.problem()?));
    Some(Line { text, emphasis: Emphasis::Problem })
}

/// The figures of `now`, with rates since `before`, or since the start of the daemon.
fn report(now: &Report, before: Option<&Report>, sort: Sort) -> Vec<Line> {
    let change = Change { now, before, seconds: now.uptime_seconds - before.map_or(0.0, |it| it.uptime_seconds) };
    let mut lines: Vec<_> = head(&change).into_iter().map(|text| Line { text, emphasis: Emphasis::None }).collect();
    lines.push(Line { text: String::new(), emphasis: Emphasis::None });
    if now.operations.is_empty() {
        lines.push(Line { text: "no requests yet".into(), emphasis: Emphasis::None });
        return lines;
    }
    let table = operations(&change, sort);
    lines.extend(table.lines().enumerate().map(|(index, text)| Line {
        // The table pads every cell on both sides.
        text: text.strip_prefix(' ').unwrap_or(&text).trim_end().into(),
        emphasis: if index == 0 { Emphasis::Heading } else { Emphasis::None },
    }));
    lines
}

fn head(change: &Change<'_>) -> Vec<String> {
    let now = change.now;
    let value = |family: Family| now.value(family.name).unwrap_or(0);
    let period = match change.before {
        Some(_) => format!("over {:.1} s", change.seconds),
        None => "average since start".into(),
    };
    let depths = match &now.queue_depths[..] {
        [] => "none".into(),
        depths => depths.iter().map(u64::to_string).collect::<Vec<_>>().join(" "),
    };
    let mut lines = vec![
        format!(
            "rates     {} requests/s   read {:.1} MiB/s   written {:.1} MiB/s   {} errors/s   ({period})",
            rate(change.operations(|it| it.count)),
            change.counter(families::READ_BYTES) / MIB,
            change.counter(families::WRITTEN_BYTES) / MIB,
            rate(change.operations(|it| it.errors)),
        ),
        format!(
            "guest     {} inodes   {} open files   {} of {} descriptors   {} sessions",
            value(families::INODES),
            value(families::OPEN_FILES),
            value(families::DESCRIPTORS),
            value(families::DESCRIPTORS_LIMIT),
            value(families::SESSIONS),
        ),
        format!(
            "requests  in flight by queue: {depths}   pool: {} of {} threads busy, {} waiting",
            value(families::POOL_BUSY),
            value(families::POOL_THREADS),
            value(families::POOL_QUEUED),
        ),
    ];
    if let Some(window) = &now.window {
        lines.extend(window_lines(change, window));
    }
    if let Some(members) = now.value(families::GROUP_MEMBERS.name) {
        lines.push(format!(
            "group     {members} members   clock {}   {} stamps/s   {} epochs raised",
            value(families::GROUP_STAMPS),
            rate(change.counter(families::GROUP_STAMPS)),
            value(families::GROUP_EPOCHS),
        ));
        lines.push(host_changes_line(change));
    }
    lines.extend(now.replays.as_ref().map(|replays| replay_line(change, replays)));
    if !now.errors.is_empty() {
        let mut errors: Vec<_> = now.errors.iter().collect();
        errors.sort_by_key(|error| Reverse(error.value));
        let errors: Vec<_> = errors.iter().map(|it| format!("{} {}", it.value, printable(&it.name))).collect();
        lines.push(format!("errors    {}", errors.join("   ")));
    }
    match value(families::BROKEN_QUEUES) {
        0 => {}
        count => lines.push(format!("broken    {count} queues stopped: the guest violated the virtqueue protocol")),
    }
    lines
}

/// Whether changes on the host are stamped, and after what time if this daemon does it.
fn host_changes_line(change: &Change<'_>) -> String {
    if change.now.value(families::GROUP_HOST_WATCHED.name) != Some(1) {
        return "          changes on the host are not stamped".into();
    }
    let delay = |report: &Report| report.group_host_delay_ns.unwrap_or(0);
    let timed = |report: &Report| report.value(families::GROUP_HOST_CHANGES_TIMED.name).unwrap_or(0);
    let since = |of: &dyn Fn(&Report) -> u64| of(change.now).saturating_sub(change.before.map_or(0, of));
    format!(
        "          changes on the host: {} stamped/s by this daemon   delay of host changes {}",
        rate(change.counter(families::GROUP_HOST_CHANGES)),
        since(&delay).checked_div(since(&timed)).map_or("-".into(), latency),
    )
}

/// The agent of the guest: whether it keeps up, how fast, and what it missed.
fn replay_line(change: &Change<'_>, replays: &ReplayReport) -> String {
    let figure = |of: &dyn Fn(&ReplayReport) -> u64| {
        let before = change.before.and_then(|report| report.replays.as_ref()).map_or(0, of);
        of(replays).saturating_sub(before)
    };
    let done = figure(&|it| it.replayed + it.skipped);
    let delay = figure(&|it| it.delay_ns).checked_div(done).map_or("-".into(), latency);
    let state = match (replays.agents, replays.keeps_up) {
        (0, _) => "no agent",
        (_, true) => "keeps up",
        (_, false) => "lags behind",
    };
    format!(
        "agent     {state}   {} changes/s, {delay} until acknowledged   {} waiting   {} skipped   {} overflows",
        rate(change.per_second(done)),
        replays.waiting,
        replays.skipped,
        replays.overflows,
    )
}

/// The DAX window: how full it is, how fast that changes, and for which files.
fn window_lines(change: &Change<'_>, window: &WindowReport) -> Vec<String> {
    let figure = |of: &dyn Fn(&WindowReport) -> u64| {
        let before = change.before.and_then(|report| report.window.as_ref()).map_or(0, of);
        of(window).saturating_sub(before)
    };
    let (maps, map_ns) = (figure(&|it| it.maps), figure(&|it| it.map_ns));
    let cost = map_ns.checked_div(maps).map_or("-".into(), latency);
    let mut lines = vec![format!(
        "window    {} of {} ranges mapped ({:.0} MiB)   {} maps/s, {cost} each   {} unmaps/s   {} refused",
        window.ranges,
        window.len_bytes / RANGE_LEN,
        (window.ranges * RANGE_LEN) as f64 / MIB,
        rate(change.per_second(maps)),
        rate(change.per_second(figure(&|it| it.unmaps))),
        window.refused,
    )];
    const FILES_SHOWN: usize = 3;
    let files = window.files.iter().take(FILES_SHOWN);
    let files: Vec<_> = files.map(|it| format!("{} ({})", printable(&it.name), it.value)).collect();
    if !files.is_empty() {
        lines.push(format!("          most ranges: {}", files.join("   ")));
    }
    lines
}

fn operations(change: &Change<'_>, sort: Sort) -> Table {
    let before: HashMap<_, _> =
        change.before.iter().flat_map(|it| &it.operations).map(|it| (it.operation.as_str(), it.count)).collect();
    let mut rows: Vec<_> = change.now.operations.iter().collect();
    let delta = |it: &OperationReport| it.count.saturating_sub(*before.get(it.operation.as_str()).unwrap_or(&0));
    rows.sort_by(|a, b| a.operation.cmp(&b.operation));
    match sort {
        // Operations that rest keep an order that does not jump.
        Sort::Rate => rows.sort_by_key(|it| Reverse((delta(it), it.count))),
        Sort::Total => rows.sort_by_key(|it| Reverse(it.count)),
        Sort::P99 => rows.sort_by_key(|it| Reverse(it.p99_ns)),
        Sort::Errors => rows.sort_by_key(|it| Reverse(it.errors)),
        Sort::Name => {}
    }
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["OPERATION", "REQ/S", "TOTAL", "P50", "P90", "P99", "MAX", "ERRORS"]);
    for it in rows {
        table.add_row([
            printable(&it.operation),
            rate(change.per_second(delta(it))),
            it.count.to_string(),
            latency(it.p50_ns),
            latency(it.p90_ns),
            latency(it.p99_ns),
            latency(it.max_ns),
            it.errors.to_string(),
        ]);
    }
    table.column_iter_mut().skip(1).for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    table
}

/// From one reading to the next.
struct Change<'a> {
    now: &'a Report,
    before: Option<&'a Report>,
    seconds: f64,
}

impl Change<'_> {
    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    fn counter(&self, family: Family) -> f64 {
        let value = |report: &Report| report.value(family.name).unwrap_or(0);
        self.per_second(value(self.now).saturating_sub(self.before.map_or(0, value)))
    }

    fn operations(&self, figure: impl Fn(&OperationReport) -> u64) -> f64 {
        let sum = |report: &Report| report.operations.iter().map(&figure).sum::<u64>();
        self.per_second(sum(self.now).saturating_sub(self.before.map_or(0, sum)))
    }
}

/// Three digits are enough to compare by; a rate that is not 0 does not look like 0.
fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".into(),
        it if it < 0.1 => "<0.1".into(),
        it if it < 100.0 => format!("{it:.1}"),
        it => format!("{it:.0}"),
    }
}

fn latency(ns: u64) -> String {
    let digits = |value: f64, unit: &str| {
        if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
    };
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => digits(ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => digits(ns as f64 / 1e6, "ms"),
        _ => digits(ns as f64 / 1e9, "s"),
    }
}

fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// `text` without what a terminal would obey.
fn printable(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { '\u{fffd}' } else { it }).collect()
}

#[cfg(test)]
#[path = "table_test.rs"]
mod table_test;
