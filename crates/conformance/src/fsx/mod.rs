//! Random operations on one file against a model in memory: reads, writes, mappings, truncation, holes, copies.
//!
//! The file may be seen at several paths, for example through two mounts of one share; then every step first asks each
//! of them for the size. A seed repeats the whole run. [`operation`] chooses, [`subject`] does, [`model`] knows.

mod model;
mod operation;
mod run;
mod subject;

#[cfg(test)]
mod fsx_test;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use rustix::io::Errno;

use operation::{Operation, Random, choose};
use run::{Outcome, Run};
use subject::Subject;

pub use model::Model;
pub use operation::NAMES;

/// What to do, and where.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directories that show the same files; the file is created in the first.
    pub directories: Vec<PathBuf>,
    /// Repeats a run.
    pub seed: u64,
    /// The run ends after this time, or before.
    pub time: Duration,
    /// The run ends after so many operations, or before.
    pub operations: u64,
    /// Operations that are left out, by [`NAMES`].
    pub without: Vec<String>,
    /// Paths, by their index, at which nothing is mapped.
    pub unmapped: Vec<usize>,
    /// How far the file and an operation reach.
    pub limits: Limits,
    /// Prints every operation before it is done.
    pub is_verbose: bool,
}

/// How far the file and an operation reach.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the largest file.
    pub size_max: u64,
    /// Bytes of the largest read or write.
    pub len_max: u64,
}

/// What a run without a mismatch did.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Operations done, by name.
    pub done: BTreeMap<&'static str, u64>,
    /// Operations that the file system refused as not supported, by name.
    pub unsupported: BTreeMap<&'static str, u64>,
    /// The file's greatest size.
    pub size_most: u64,
}

/// The file does not hold what it should, or an operation failed.
#[derive(Debug)]
pub struct Mismatch {
    /// What was wrong.
    what: String,
    /// The last operations, the failed one last.
    last: Vec<(u64, Operation)>,
    path: PathBuf,
    seed: u64,
}

/// How many operations a report shows.
const SHOWN: usize = 40;

/// Runs until the time is over. Errors: the file cannot be created, or is not as the model has it.
pub fn run(settings: &Settings) -> anyhow::Result<Summary> {
    let name = format!("fsx-{}-{}", settings.seed, std::process::id());
    let subject = Subject::create(&settings.directories, &name)
        .map_err(|errno| anyhow::anyhow!("cannot create {name} in {}: {errno}", settings.directories[0].display()))?;
    let path = subject.path(0).to_owned();
    let mut run = Run::new(subject, settings);
    let mut random = Random(settings.seed);
    let mut last = Vec::new();
    let mut summary = Summary { done: BTreeMap::new(), unsupported: BTreeMap::new(), size_most: 0 };
    let deadline = Instant::now() + settings.time;
    let mut number = 0;
    while number < settings.operations && Instant::now() < deadline {
        number += 1;
        let operation = choose(&mut random, run.model(), &settings.limits, settings.directories.len());
        if settings.without.iter().any(|name| name == operation.name()) {
            continue;
        }
        if settings.is_verbose {
            println!("{number} {operation:?}");
        }
        if last.len() == SHOWN {
            last.remove(0);
        }
        last.push((number, operation));
        match run.step(operation) {
            Ok(Outcome::Done) => *summary.done.entry(operation.name()).or_default() += 1,
            Ok(Outcome::Unsupported) => *summary.unsupported.entry(operation.name()).or_default() += 1,
            Ok(Outcome::Nothing) => {
                last.pop();
            }
            Err(what) => return Err(Mismatch { what, last, path, seed: settings.seed }.into()),
        }
        summary.size_most = summary.size_most.max(run.model().len());
    }
    match run.finish() {
        Ok(()) => Ok(summary),
        Err(what) => Err(Mismatch { what, last, path, seed: settings.seed }.into()),
    }
}

/// Whether a file system says so where it lacks something.
fn is_unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV | Errno::XDEV)
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total: u64 = self.done.values().sum();
        write!(f, "{total} operations, up to {} bytes, no difference;", self.size_most)?;
        self.done.iter().try_for_each(|(name, count)| write!(f, " {name} {count}"))?;
        if !self.unsupported.is_empty() {
            f.write_str("; not supported here:")?;
            self.unsupported.iter().try_for_each(|(name, count)| write!(f, " {name} {count}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        writeln!(f, "the last operations, the failed one last:")?;
        self.last.iter().try_for_each(|(number, operation)| writeln!(f, "  {number} {operation:?}"))?;
        write!(f, "seed {}; the file is left at {}", self.seed, self.path.display())
    }
}

impl std::error::Error for Mismatch {}
