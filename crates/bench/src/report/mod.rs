//! What a run of the benchmark leaves behind: every sample with its units, the machine, and the command.
//!
//! The JSON file holds samples only; [`compare`], [`markdown`], [`console`] and [`html`] derive the rest, so that
//! a table can be made again; [`versus`] sets two files against each other.

pub mod compare;
pub mod console;
#[cfg(test)]
pub(crate) mod example;
mod facts;
mod html;
mod markdown;
mod numbers;
mod statistics;
pub mod versus;

use std::path::Path;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

pub use facts::Facts;
pub use html::html;
pub use markdown::markdown;

use crate::{daemon::Candidate, workload::line::LatencyCount};

/// A file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of the file's format, [`SCHEMA`]; files from before it was written have none.
    #[serde(default = "first_schema")]
    pub schema: u32,
    /// What was measured.
    pub title: String,
    /// The command line that measured it.
    pub command: Vec<String>,
    /// Where and when.
    pub facts: Facts,
    /// The daemons, the first one against each other.
    pub daemons: Vec<Version>,
    /// What the machine itself can do.
    pub limits: Vec<Limit>,
    /// What a reader must know: what was scaled, what was not measured and why.
    #[serde(default)]
    pub notes: Vec<String>,
    /// All samples, in the order of measuring.
    pub samples: Vec<Sample>,
}

/// The version of the format of results that is written. Older ones are read; a newer one is refused.
///
/// 2 has `notes`, and `latency_counts` in each measure.
pub const SCHEMA: u32 = 2;

fn first_schema() -> u32 {
    1
}

/// A daemon and what it says about itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// Its name in the tables.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Arguments beside those that every daemon got.
    pub args: Vec<String>,
}

impl Version {
    /// What `candidate` says.
    pub fn of(candidate: &Candidate) -> Self {
        Self { name: candidate.name.clone(), version: candidate.version(), args: candidate.args.clone() }
    }
}

/// One workload, one daemon, one repetition.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The guest, the placement, the cache mode.
    pub scenario: String,
    /// What was done.
    pub workload: String,
    /// By which daemon, or [`HOST`] for none.
    pub daemon: String,
    /// In which round; samples of one round are neighbours in time.
    pub repetition: u32,
    /// How it went; `None` where it was refused.
    pub measure: Option<Measure>,
    /// Why it was refused.
    pub refusal: Option<String>,
}

/// The name that stands for a bare directory of the host.
pub const HOST: &str = "host";

/// What was measured in one sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// Operations done.
    pub ops: u64,
    /// Bytes in one operation; 0 where there is no payload.
    pub bytes_per_op: u64,
    /// Operations each second.
    pub ops_per_s: f64,
    /// The median of single operations.
    pub latency_p50_ns: f64,
    /// 99 of 100 were quicker.
    pub latency_p99_ns: f64,
    /// All single operations, by classes in rising order; empty where they were not counted.
    #[serde(default)]
    pub latency_counts: Vec<LatencyCount>,
    /// Processor time of the daemon for one operation; `None` where there is no daemon.
    pub daemon_cpu_ns_per_op: Option<f64>,
}

/// Something that the machine itself does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Limit {
    /// What, with its unit at the end.
    pub name: String,
    /// How much.
    pub value: f64,
}

impl Report {
    /// Reads a file that [`Report::write`] made.
    ///
    /// Errors: it cannot be read, is of something else, or of a newer format.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        #[derive(Deserialize)]
        struct Format {
            #[serde(default = "first_schema")]
            schema: u32,
        }
        let text = std::fs::read(path).with_context(|| format!("reading {path:?}"))?;
        let none = || format!("{path:?} is no file of results");
        let Format { schema } = serde_json::from_slice(&text).with_context(none)?;
        ensure!(schema <= SCHEMA, "{path:?} has results of format {schema}; this program reads up to {SCHEMA}");
        let report: Self = serde_json::from_slice(&text).with_context(none)?;
        ensure!(!report.daemons.is_empty(), "{path:?} has results of no daemon");
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
