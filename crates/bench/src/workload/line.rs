//! The output of a run of the workloads: one JSON object a line, with the unit in each name.

use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// The timed part of a workload is about to start.
    Begin {
        /// Its name.
        workload: String,
    },
    /// It has ended.
    Result(Timing),
    /// It cannot be done here.
    Refused {
        /// Its name.
        workload: String,
        /// The system's reason.
        reason: String,
    },
    /// All workloads are done. Without this line, a run is incomplete.
    End,
}

/// How long the operations of one workload took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// The workload's name.
    pub workload: String,
    /// Number of operations.
    pub ops: u64,
    /// Payload moved; 0 if the workload only uses names and attributes.
    pub bytes: u64,
    /// Total time.
    pub elapsed_ns: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Median latency of an operation.
    pub latency_p50_ns: u64,
    /// 99th-percentile latency of an operation.
    pub latency_p99_ns: u64,
    /// Latencies of all operations, by classes in rising order.
    pub latency_counts: Vec<LatencyCount>,
}

/// The number of operations with a latency below `below_ns` and not below the previous class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyCount {
    /// The upper end of the class.
    pub below_ns: u64,
    /// Number of operations in it.
    pub count: u64,
}
