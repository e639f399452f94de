//! A snapshot as JSON: what `transom top` reads.

use serde::{Deserialize, Serialize};

use super::{
    Snapshot, WindowGauges,
    families::{Counter, Family, Kind},
};

/// All figures at one moment. Fields are added over time; none changes its meaning while `layout` stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The layout, 1.
    pub layout: u32,
    /// The version of the daemon.
    pub version: String,
    /// Seconds since the daemon started.
    pub uptime_seconds: f64,
    /// The operations that were asked for at least once.
    pub operations: Vec<OperationReport>,
    /// Errors, those that were answered at least once.
    pub errors: Vec<Value>,
    /// Counters, by the names of their metrics.
    pub counters: Vec<Value>,
    /// Gauges, by the names of their metrics.
    pub gauges: Vec<Value>,
    /// Requests in flight of each queue, by its number.
    pub queue_depths: Vec<u64>,
    /// The DAX window, if there is one.
    #[serde(default)]
    pub window: Option<WindowReport>,
}

/// One operation's figures. Quantiles are at most a quarter too high.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// In lower case.
    pub operation: String,
    /// Requests.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Time spent.
    pub duration_sum_ns: u64,
    /// The latency that half of the requests did not exceed.
    pub p50_ns: u64,
    /// The latency that 90 of 100 requests did not exceed.
    pub p90_ns: u64,
    /// The latency that 99 of 100 requests did not exceed.
    pub p99_ns: u64,
    /// The latency that no request exceeded.
    pub max_ns: u64,
}

/// The DAX window's figures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Its size.
    pub len_bytes: u64,
    /// Ranges mapped now, each of 2 MiB.
    pub ranges: u64,
    /// Ranges mapped so far.
    pub maps: u64,
    /// Ranges unmapped on request so far.
    pub unmaps: u64,
    /// Mappings that the guest asked for in vain.
    pub refused: u64,
    /// Time that mapping took.
    pub map_ns: u64,
    /// Files with most ranges, and their numbers of ranges.
    pub files: Vec<Value>,
}

/// A figure with its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: u64,
}

impl Report {
    /// Renders `snapshot`.
    pub fn new(snapshot: &Snapshot) -> Self {
        let value = |name: &str, value: u64| Value { name: name.into(), value };
        let is_counter = |family: &Family| family.kind == Kind::Counter;
        let single = |counters: bool| {
            let pairs = snapshot.gauges.single().filter(move |(family, _)| is_counter(family) == counters);
            pairs.map(move |(family, count)| value(family.name, count))
        };
        let operations = snapshot.operations.iter().map(|operation| OperationReport {
            operation: operation.name.into(),
            count: operation.count,
            errors: operation.errors,
            duration_sum_ns: operation.duration_sum_ns,
            p50_ns: operation.quantile_ns(0.5),
            p90_ns: operation.quantile_ns(0.9),
            p99_ns: operation.quantile_ns(0.99),
            max_ns: operation.quantile_ns(1.0),
        });
        Self {
            layout: 1,
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: snapshot.uptime_seconds,
            operations: operations.collect(),
            errors: snapshot.errors.iter().map(|(name, count)| value(name, *count)).collect(),
            counters: Counter::ALL
                .iter()
                .map(|&it| value(it.family().name, snapshot.counter(it)))
                .chain(single(true))
                .collect(),
            gauges: single(false).collect(),
            queue_depths: snapshot.gauges.queue_depths.clone(),
            window: snapshot.gauges.window.as_ref().map(|WindowGauges { usage, files }| WindowReport {
                len_bytes: usage.len_bytes,
                ranges: usage.ranges_mapped,
                maps: usage.maps,
                unmaps: usage.unmaps,
                refused: usage.refused,
                map_ns: usage.map_ns,
                files: files.iter().map(|(name, ranges)| value(name, *ranges)).collect(),
            }),
        }
    }

    /// The value of a counter or gauge, by the name of its metric.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.counters.iter().chain(&self.gauges).find(|value| value.name == name).map(|value| value.value)
    }
}
