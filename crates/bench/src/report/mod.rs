//! What a run of the benchmark leaves behind: every sample with its units, the machine, and the command.
//!
//! The JSON file holds samples only; [`compare`] and [`markdown`] derive the rest, so that a table can be made again.

pub mod compare;
mod facts;
mod markdown;
mod statistics;

use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

pub use facts::Facts;
pub use markdown::markdown;

/// A file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
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
    /// All samples, in the order of measuring.
    pub samples: Vec<Sample>,
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
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("{} is no file of results", path.display()))
    }

    /// Writes `NAME.json` and `NAME.md` in `dir`.
    pub fn write(&self, dir: &Path, name: &str) -> anyhow::Result<()> {
        std::fs::create_dir_all(dir)?;
        std::fs::write(dir.join(format!("{name}.json")), serde_json::to_vec_pretty(self)?)?;
        std::fs::write(dir.join(format!("{name}.md")), markdown(self))?;
        Ok(())
    }
}
