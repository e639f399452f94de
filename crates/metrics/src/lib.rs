//! The schema of the daemon's metrics, shared by the daemon that counts and the programs that read.
//!
//! [`families`] lists every metric with its meaning. A [`Snapshot`] holds the values at one moment; [`histogram`]
//! defines its latency buckets. A [`Report`] is a snapshot as JSON. The counters themselves and the text for
//! Prometheus live in `transom-host`.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod families;
pub mod histogram;
mod report;
mod snapshot;

pub use families::Counter;
pub use report::{OperationReport, ReplayReport, Report, ReportError, Value, WindowReport};
pub use snapshot::{Gauges, GroupGauges, Operation, QuotaGauges, ReplayGauges, Snapshot, WindowGauges, WindowUsage};
