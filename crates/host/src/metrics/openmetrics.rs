//! A snapshot as OpenMetrics text, which Prometheus and its kin read.
//!
//! Source: the OpenMetrics 1.0 specification.

use std::fmt::Write;

use super::{
    Snapshot, WindowGauges,
    families::{self, Counter, Family, Kind},
};

/// The `Content-Type` of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The whole text, with its `# EOF`.
pub fn render(snapshot: &Snapshot) -> String {
    let mut text = Text(String::new());
    let gauges = &snapshot.gauges;
    text.family(families::BUILD).sample("_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family(families::UPTIME).sample("", &[], snapshot.uptime_seconds);
    durations(&mut text, snapshot);
    let mut errors = text.family(families::OPERATION_ERRORS);
    for operation in snapshot.operations.iter().filter(|operation| operation.errors > 0) {
        errors.sample("_total", &[("operation", operation.name)], operation.errors);
    }
    let mut errors = text.family(families::ERRORS);
    for (errno, count) in &snapshot.errors {
        errors.sample("_total", &[("errno", errno)], count);
    }
    for &counter in Counter::ALL {
        text.family(counter.family()).sample("_total", &[], snapshot.counter(counter));
    }
    for (family, value) in gauges.single() {
        let suffix = if family.kind == Kind::Counter { "_total" } else { "" };
        text.family(family).sample(suffix, &[], value);
    }
    if let Some(WindowGauges { usage, .. }) = &gauges.window {
        text.family(families::WINDOW_BYTES).sample("", &[], usage.len_bytes);
        text.family(families::WINDOW_RANGES).sample("", &[], usage.ranges_mapped);
        text.family(families::WINDOW_MAPS).sample("_total", &[], usage.maps);
        text.family(families::WINDOW_UNMAPS).sample("_total", &[], usage.unmaps);
        text.family(families::WINDOW_REFUSED).sample("_total", &[], usage.refused);
        text.family(families::WINDOW_MAP_DURATION).sample("_total", &[], seconds(usage.map_ns));
    }
    let mut depths = text.family(families::QUEUE_DEPTH);
    for (queue, depth) in gauges.queue_depths.iter().enumerate() {
        depths.sample("", &[("queue", &queue.to_string())], depth);
    }
    text.0.push_str("# EOF\n");
    text.0
}

fn durations(text: &mut Text, snapshot: &Snapshot) {
    let mut family = text.family(families::OPERATION_DURATION);
    for operation in &snapshot.operations {
        let label = ("operation", operation.name);
        for (bound_ns, count) in operation.cumulative() {
            family.sample("_bucket", &[label, ("le", &seconds(bound_ns).to_string())], count);
        }
        family.sample("_bucket", &[label, ("le", "+Inf")], operation.count);
        family.sample("_sum", &[label], seconds(operation.duration_sum_ns));
        family.sample("_count", &[label], operation.count);
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The text so far.
struct Text(String);

/// The text, inside of one family.
struct Samples<'a> {
    text: &'a mut String,
    name: &'static str,
}

impl Text {
    /// Begins a family with its head.
    fn family(&mut self, family: Family) -> Samples<'_> {
        let Family { name, kind, unit, help, .. } = family;
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# TYPE {name} {}", kind.word());
        if !unit.is_empty() && kind != Kind::Info {
            let _ = writeln!(self.0, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.0, "# HELP {name} {help}");
        Samples { text: &mut self.0, name }
    }
}

impl Samples<'_> {
    /// Adds one line. Names and values of labels are ours: letters, digits, and nothing that wants an escape.
    fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        for (index, (label, value)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{label}=\"{value}\"");
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
    }
}
