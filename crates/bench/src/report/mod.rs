//! The result of a benchmark run: every sample with its units, the machine, and the command.
//!
//! The JSON file holds only samples; [`compare`], [`markdown`], [`console`] and [`html`] derive the rest, so that a
//! table can be rendered again. [`versus`] compares two files.

pub mod compare;
pub mod console;
#[cfg(test)]
pub(crate) mod example;
mod facts;
mod html;
mod markdown;
mod numbers;
mod picture;
mod statistics;
pub mod versus;

use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

pub use facts::Facts;
pub use html::html;
pub use markdown::markdown;
pub use picture::picture;

use crate::{daemon::Candidate, workload::line::LatencyCount};

/// A file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of the file's format, [`SCHEMA`]; missing in files older than this field.
    #[serde(default = "first_schema")]
    pub schema: u32,
    /// What was measured.
    pub title: String,
    /// The command line of the measurement.
    pub command: Vec<String>,
    /// Where and when.
    pub facts: Facts,
    /// The daemons; the first one is compared with each of the others.
    pub daemons: Vec<Version>,
    /// Limits of the machine.
    pub limits: Vec<Limit>,
    /// What a reader must know: what was scaled, and what was not measured and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// All samples, in the order of measuring.
    pub samples: Vec<Sample>,
}

/// The version of the result format that is written. Older versions can be read; newer ones are rejected.
///
/// Version 2 added `notes`, and `latency_counts` in each measure.
pub const SCHEMA: u32 = 2;

fn first_schema() -> u32 {
    1
}

/// A daemon and its version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Its name in the tables.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its arguments, without those that every daemon got.
    pub args: Vec<String>,
}

impl Version {
    /// Returns the version of `candidate`.
    pub fn of(candidate: &Candidate) -> Self {
        Self { name: candidate.name.clone(), version: candidate.version(), args: candidate.args.clone() }
    }
}

/// One workload, one daemon, one repetition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The guest, the placement, the cache mode.
    pub scenario: String,
    /// The workload.
    pub workload: String,
    /// The daemon, or [`HOST`] for the bare directory.
    pub daemon: String,
    /// The round; samples of one round are close in time.
    pub repetition: u32,
    /// The measurement; `None` if the workload was refused.
    pub measure: Option<Measure>,
    /// Why it was refused.
    pub refusal: Option<String>,
}

/// The name of the bare directory of the host.
pub const HOST: &str = "host";

/// The measurement of one sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// Number of operations.
    pub ops: u64,
    /// Bytes per operation; 0 if there is no payload.
    pub bytes_per_op: u64,
    /// Operations per second.
    pub ops_per_s: f64,
    /// Median latency of an operation.
    pub latency_p50_ns: f64,
    /// 99th-percentile latency of an operation.
    pub latency_p99_ns: f64,
    /// Latencies of all operations, by classes in rising order; empty if they were not counted.
    #[serde(default)]
    pub latency_counts: Vec<LatencyCount>,
    /// Processor time of the daemon per operation; `None` if there is no daemon.
    pub daemon_cpu_ns_per_op: Option<f64>,
}

/// A limit of the machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// The name, which ends with the unit.
    pub name: String,
    /// The value.
    pub value: f64,
}

impl Report {
    /// Reads a file that [`Report::write`] wrote.
    ///
    /// # Errors
    /// If the file cannot be read, has other contents, or has a newer format.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Format {
            #[serde(default = "first_schema")]
            schema: u32,
        }
        let text = std::fs::read(path).with_context(|| format!("reading {path:?}"))?;
        let none = || format!("{path:?} is not a result file");
        let Format { schema } = serde_json::from_slice(&text).with_context(none)?;
        ensure!(schema <= SCHEMA, "{path:?} has results of format {schema}; this program reads up to {SCHEMA}");
        let report: Self = serde_json::from_slice(&text).with_context(none)?;
        ensure!(!report.daemons.is_empty(), "{path:?} contains no daemons");
        Ok(report)
    }

    /// Writes `NAME.json`, `NAME.md` and `NAME.html` in `dir`.
    pub fn write(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("making {dir:?}"))?;
        let write = |ending: &str, bytes: &[u8]| {
            let path = dir.join(format!("{name}.{ending}"));
            std::fs::write(&path, bytes).with_context(|| format!("writing {path:?}"))
        };
        write("json", &serde_json::to_vec(self)?)?;
        write("md", markdown(self).as_bytes())?;
        write("html", html(self).as_bytes())
    }
}
