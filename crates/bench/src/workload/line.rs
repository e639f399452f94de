//! What a run of the workloads says: one JSON object a line, with the unit in each name.

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
    /// It ended.
    Result(Timing),
    /// It could not be done here.
    Refused {
        /// Its name.
        workload: String,
        /// The system's reason.
        reason: String,
    },
    /// All workloads are done; without this line a run is not complete.
    End,
}

/// How long the operations of one workload took.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timing {
    /// The workload's name.
    pub workload: String,
    /// Operations done.
    pub ops: u64,
    /// Payload moved; 0 where the workload is about names and attributes.
    pub bytes: u64,
    /// Time for all of them.
    pub elapsed_ns: u64,
    /// Operations each second.
    pub ops_per_s: f64,
    /// The median of single operations.
    pub latency_p50_ns: u64,
    /// 99 in 100 were quicker.
    pub latency_p99_ns: u64,
    /// All of them, by classes in rising order.
    pub latency_counts: Vec<LatencyCount>,
}

/// How many operations took how long: less than this, and not less than the class before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatencyCount {
    /// The end of the class.
    pub below_ns: u64,
    /// Operations in it.
    pub count: u64,
}
