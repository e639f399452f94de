//! Renders a snapshot as OpenMetrics text, which Prometheus reads.
//!
//! `prometheus-client` writes the format. Its own counters and histograms are not used: they take a lock and look a
//! label set up for each request, so [`Exposition`] hands it the values of a [`Snapshot`] when somebody reads.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use transom_metrics::{
    Counter, Operation, ReplayGauges, Snapshot, WindowGauges,
    families::{self, Family, Kind},
};

/// The `Content-Type` of the text.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Returns the whole text, including its `# EOF`.
pub(super) fn render(snapshot: Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Exposition(snapshot)));
    let mut text = String::new();
    text::encode(&mut text, &registry).expect("writing to a String does not fail");
    text
}

/// A snapshot as `prometheus-client` takes it.
#[derive(Debug)]
struct Exposition(Snapshot);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(snapshot) = self;
        let mut text = Families(&mut encoder);
        text.with(families::BUILD, |mut it| it.encode_info(&[("version", env!("CARGO_PKG_VERSION"))]))?;
        text.with(families::UPTIME, |mut it| it.encode_gauge(&snapshot.uptime_seconds))?;
        text.with(families::OPERATION_DURATION, |mut it| {
            snapshot.operations.iter().try_for_each(|operation| durations(&mut it, operation))
        })?;
        let failed = snapshot.operations.iter().filter(|operation| operation.errors > 0);
        text.counters(families::OPERATION_ERRORS, failed.map(|operation| (operation.name, operation.errors)))?;
        text.counters(families::ERRORS, snapshot.errors.iter().map(|(name, count)| (name.as_str(), *count)))?;
        for &counter in Counter::ALL {
            text.number(counter.family(), snapshot.counter(counter))?;
        }
        for (family, value) in snapshot.gauges.plain() {
            text.number(family, value)?;
        }
        if let Some(group) = &snapshot.gauges.group {
            text.seconds(families::GROUP_HOST_DELAY, group.host_delay_ns)?;
        }
        if let Some(window) = &snapshot.gauges.window {
            text.window(window)?;
        }
        if let Some(replays) = &snapshot.gauges.replays {
            text.replays(replays)?;
        }
        text.with(families::QUEUE_DEPTH, |mut it| {
            let mut depths = snapshot.gauges.queue_depths.iter().enumerate();
            let label = families::QUEUE_DEPTH.label;
            depths.try_for_each(|(queue, depth)| it.encode_family(&[(label, queue)])?.encode_gauge(depth))
        })
    }
}

fn durations(encoder: &mut MetricEncoder<'_>, operation: &Operation) -> fmt::Result {
    let mut buckets: Vec<_> =
        operation.coarse_durations().map(|(bound_ns, count)| (seconds(bound_ns), count)).collect();
    let bounded: u64 = buckets.iter().map(|(_, count)| count).sum();
    buckets.push((f64::INFINITY, operation.count() - bounded));
    let sum = seconds(operation.duration_sum_ns);
    encoder.encode_family(&[(families::OPERATION_DURATION.label, operation.name)])?.encode_histogram::<NoLabelSet>(
        sum,
        operation.count(),
        &buckets,
        None,
    )
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Writes whole families, one after the other.
struct Families<'a, 'b>(&'a mut DescriptorEncoder<'b>);

impl Families<'_, '_> {
    /// Writes the head of a family, then what `samples` writes.
    fn with(&mut self, family: Family, samples: impl FnOnce(MetricEncoder<'_>) -> fmt::Result) -> fmt::Result {
        let Family { name, kind, unit, help, .. } = family;
        let metric_type = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
            Kind::Info => MetricType::Info,
        };
        // The encoder appends the unit to the name.
        let stem = name.strip_suffix(unit).and_then(|stem| stem.strip_suffix('_')).unwrap_or(name);
        let unit = (!unit.is_empty()).then(|| Unit::Other(unit.into()));
        samples(self.0.encode_descriptor(stem, help, unit.as_ref(), metric_type)?)
    }

    /// Writes a family of one counter or gauge.
    fn number(&mut self, family: Family, value: u64) -> fmt::Result {
        self.with(family, |mut it| match family.kind {
            Kind::Counter => it.encode_counter::<NoLabelSet, _, u64>(&value, None),
            _ => it.encode_gauge(&value),
        })
    }

    /// Writes a family of counters that differ by its label.
    fn counters<'a>(&mut self, family: Family, values: impl Iterator<Item = (&'a str, u64)>) -> fmt::Result {
        self.with(family, |mut it| {
            let mut values = values;
            values.try_for_each(|(label, value)| {
                it.encode_family(&[(family.label, label)])?.encode_counter::<NoLabelSet, _, u64>(&value, None)
            })
        })
    }

    fn replays(&mut self, replays: &ReplayGauges) -> fmt::Result {
        for (family, value) in replays.plain() {
            self.number(family, value)?;
        }
        self.seconds(families::REPLAY_DELAY, replays.delay_ns)
    }

    /// Writes a family of one counter of time.
    fn seconds(&mut self, family: Family, ns: u64) -> fmt::Result {
        self.with(family, |mut it| it.encode_counter::<NoLabelSet, _, f64>(&seconds(ns), None))
    }

    fn window(&mut self, WindowGauges { usage, .. }: &WindowGauges) -> fmt::Result {
        self.number(families::WINDOW_BYTES, usage.len_bytes)?;
        self.number(families::WINDOW_RANGES, usage.ranges_mapped)?;
        self.number(families::WINDOW_MAPS, usage.maps)?;
        self.number(families::WINDOW_UNMAPS, usage.unmaps)?;
        self.number(families::WINDOW_REFUSED, usage.refused)?;
        self.seconds(families::WINDOW_MAP_DURATION, usage.map_ns)
    }
}

#[cfg(test)]
#[path = "openmetrics_test.rs"]
mod openmetrics_test;
