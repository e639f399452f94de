//! A snapshot as JSON, which `transom top` reads.

use serde::{Deserialize, Serialize};

use crate::{Counter, Operation, ReplayGauges, Snapshot, WindowGauges, families::Kind};

/// The version of the layout. Fields may be added to a layout, but none changes its meaning.
const LAYOUT: u32 = 1;

/// The values of all metrics at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of the layout, 1.
    pub layout: u32,
    /// The daemon's version.
    pub version: String,
    /// Seconds since the daemon started.
    pub uptime_seconds: f64,
    /// The operations requested at least once.
    pub operations: Vec<OperationReport>,
    /// The errors returned at least once.
    pub errors: Vec<Value>,
    /// Counters, by metric name.
    pub counters: Vec<Value>,
    /// Gauges, by metric name.
    pub gauges: Vec<Value>,
    /// Requests in flight, indexed by queue number.
    pub queue_depths: Vec<u64>,
    /// The DAX window, if there is one.
    #[serde(default)]
    pub window: Option<WindowReport>,
    /// [`families::GROUP_HOST_DELAY`](crate::families::GROUP_HOST_DELAY) in nanoseconds, in a coherence group.
    #[serde(default)]
    pub group_host_delay_ns: Option<u64>,
    /// What became of changes of the host, if they are announced.
    #[serde(default)]
    pub replays: Option<ReplayReport>,
}

/// The requests of one operation. Quantiles are at most 25 % too high.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// The operation's name in lower case; `other` for unknown opcodes.
    pub operation: String,
    /// Number of requests.
    pub count: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Sum of the latencies.
    pub duration_sum_ns: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 90th percentile of the latency.
    pub p90_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// Highest latency.
    pub max_ns: u64,
}

/// The state of the DAX window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// Size of the window.
    pub len_bytes: u64,
    /// Ranges of 2 MiB that are mapped.
    pub ranges: u64,
    /// Ranges mapped since the daemon started.
    pub maps: u64,
    /// Ranges unmapped since the daemon started.
    pub unmaps: u64,
    /// Mapping requests that failed.
    pub refused: u64,
    /// Time spent mapping ranges.
    pub map_ns: u64,
    /// The files with the most ranges mapped, and their number of ranges.
    pub files: Vec<Value>,
}

/// What became of changes of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplayReport {
    /// Registered agents, 0 or 1.
    pub agents: u64,
    /// Whether the agent keeps up.
    pub keeps_up: bool,
    /// Changes replayed since the daemon started.
    pub replayed: u64,
    /// Changes skipped since the daemon started.
    pub skipped: u64,
    /// How often changes were lost.
    pub overflows: u64,
    /// Changes that wait.
    pub waiting: u64,
    /// Time from reading each change to its acknowledgement, summed.
    pub delay_ns: u64,
}

/// A number with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// The name.
    pub name: String,
    /// The number.
    pub value: u64,
}

/// Why a text is not a report that this version can read.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// Not JSON, or not the JSON of a report.
    #[error("invalid report")]
    Invalid(#[source] serde_json::Error),
    /// A report of another version.
    #[error("report has layout {0}, expected layout {LAYOUT}")]
    Layout(u32),
}

impl Report {
    /// Creates the report of `snapshot` for a daemon of this version.
    pub fn new(snapshot: &Snapshot) -> Self {
        let value = |name: &str, value: u64| Value { name: name.into(), value };
        let plain = |is_counter: bool| {
            let pairs = snapshot.gauges.plain().filter(move |(family, _)| (family.kind == Kind::Counter) == is_counter);
            pairs.map(move |(family, count)| value(family.name, count))
        };
        let counters = Counter::ALL.iter().map(|&it| value(it.family().name, snapshot.counter(it)));
        Self {
            layout: LAYOUT,
            version: env!("CARGO_PKG_VERSION").into(),
            uptime_seconds: snapshot.uptime_seconds,
            operations: snapshot.operations.iter().map(OperationReport::new).collect(),
            errors: snapshot.errors.iter().map(|(name, count)| value(name, *count)).collect(),
            counters: counters.chain(plain(true)).collect(),
            gauges: plain(false).collect(),
            queue_depths: snapshot.gauges.queue_depths.clone(),
            window: snapshot.gauges.window.as_ref().map(WindowReport::new),
            group_host_delay_ns: snapshot.gauges.group.map(|group| group.host_delay_ns),
            replays: snapshot.gauges.replays.map(ReplayReport::new),
        }
    }

    /// Parses the JSON of a report.
    ///
    /// # Errors
    ///
    /// [`ReportError::Layout`] if a daemon of another version wrote it, [`ReportError::Invalid`] for everything else.
    pub fn parse(json: &[u8]) -> Result<Self, ReportError> {
        /// The field that every layout has.
        #[derive(Deserialize)]
        struct Header {
            layout: u32,
        }
        let Header { layout } = serde_json::from_slice(json).map_err(ReportError::Invalid)?;
        if layout != LAYOUT {
            return Err(ReportError::Layout(layout));
        }
        serde_json::from_slice(json).map_err(ReportError::Invalid)
    }

    /// Returns the value of a counter or gauge, by metric name.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.counters.iter().chain(&self.gauges).find(|value| value.name == name).map(|value| value.value)
    }
}

impl OperationReport {
    fn new(operation: &Operation) -> Self {
        Self {
            operation: operation.name.into(),
            count: operation.count(),
            errors: operation.errors,
            duration_sum_ns: operation.duration_sum_ns,
            p50_ns: operation.quantile_ns(0.5),
            p90_ns: operation.quantile_ns(0.9),
            p99_ns: operation.quantile_ns(0.99),
            max_ns: operation.quantile_ns(1.0),
        }
    }
}

impl ReplayReport {
    fn new(gauges: ReplayGauges) -> Self {
        let ReplayGauges { agents, keeps_up, replayed, skipped, overflows, waiting, delay_ns } = gauges;
        Self { agents, keeps_up: keeps_up > 0, replayed, skipped, overflows, waiting, delay_ns }
    }
}

impl WindowReport {
    fn new(WindowGauges { usage, files }: &WindowGauges) -> Self {
        Self {
            len_bytes: usage.len_bytes,
            ranges: usage.ranges_mapped,
            maps: usage.maps,
            unmaps: usage.unmaps,
            refused: usage.refused,
            map_ns: usage.map_ns,
            files: files.iter().map(|(name, ranges)| Value { name: name.clone(), value: *ranges }).collect(),
        }
    }
}

#[cfg(test)]
#[path = "report_test.rs"]
mod report_test;
