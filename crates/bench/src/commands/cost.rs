//! `transom bench cost`.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum as _};

use super::{Common, command_line};
use crate::{
    cost::{
        self, CostReport, Operation, Plan, Row,
        baseline::{self, Baseline},
        library,
        table::markdown,
    },
    daemon::{Candidate, Source},
    report::{Facts, Version},
};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Cost {
    #[command(flatten)]
    common: Common,
    /// Requests that arrive together.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    depth: Vec<u16>,
    /// What is done [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    operations: Vec<Operation>,
    /// Count a transomd with --poll-us 0, as it is, or one after the other; other daemons do not poll.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Polling::Off, Polling::On])]
    polling: Vec<Polling>,
    /// Count what the guest library executes, over the first daemon, instead of what daemons do.
    #[arg(long, conflicts_with_all = ["depth", "operations", "polling"])]
    library: bool,
    /// Compare the first daemon, one request at a time and without polling, with this file; exit with status 1 where it
    /// is worse.
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    baseline: Option<Option<PathBuf>>,
    /// Write this file instead of comparing with it.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "baseline")]
    write_baseline: Option<Option<PathBuf>>,
}

/// Enough for a median: counts are the same each time.
const ROUNDS: u32 = 3;
/// A baseline that is written has the lowest of the figures of this many measurements.
const WRITTEN_OF: u32 = 3;
/// The committed baselines, relative to the repository.
const BASELINE: &str = "crates/bench/data/cost.baseline";
const LIBRARY_BASELINE: &str = "crates/bench/data/library.baseline";

const EXAMPLES: &str = "\
Examples:
  Count what transomd and virtiofsd execute for one LOOKUP:
      transom bench cost --operations lookup --depth 1

  See where another build of transomd is better or worse:
      transom bench cost --daemon new=target/release/transomd --daemon old=/usr/bin/transomd

  Count what the guest library executes for each of its operations:
      transom bench cost --library

  Accept what the dev build, with the settings of docs/bench.md, costs after a change that makes something dearer:
      transom bench cost --write-baseline

The daemons are traced (ptrace), which requires the rights of their user, and x86_64. Run as root: an ordinary user's
transomd holds inodes in another way. Counts do not depend on the machine's load, but the time that counting takes does:
some ten seconds for each daemon on an idle machine, a few minutes with 16 requests at once. Do not run it with a
real-time priority: it polls for threads that may not exist.";

/// Whether a daemon that can poll does so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Polling {
    Off,
    On,
}

impl Cost {
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let is_of_one = self.library || self.baseline.is_some() || self.write_baseline.is_some();
        if is_of_one && self.common.daemons.is_empty() {
            self.common.daemons.push("transomd".parse()?);
        }
        if self.baseline.is_some() || self.write_baseline.is_some() {
            return self.with_baseline();
        }
        let (candidates, rows) = if self.library {
            let candidate = self.without_polling()?;
            (vec![candidate.clone()], self.rows_of_library(&candidate)?)
        } else {
            let candidates: Vec<Candidate> =
                self.common.candidates()?.iter().flat_map(|candidate| variants(candidate, &self.polling)).collect();
            let plan = Plan {
                candidates: candidates.clone(),
                depths: self.depth.clone(),
                operations: self.operations(),
                rounds: self.rounds(),
            };
            (candidates, cost::measure(&plan, &self.common.shared_in)?)
        };
        let report = CostReport {
            schema: cost::SCHEMA,
            command: command_line(),
            facts: Facts::collect(None, &self.common.shared_in),
            daemons: candidates.iter().map(Version::of).collect(),
            rows,
        };
        let name = self.common.name.as_deref().unwrap_or("cost");
        fs::create_dir_all(&self.common.out)?;
        fs::write(self.common.out.join(format!("{name}.json")), serde_json::to_vec_pretty(&report)?)?;
        let text = markdown(&report);
        fs::write(self.common.out.join(format!("{name}.md")), &text)?;
        print!("{text}");
        Ok(())
    }

    fn rounds(&self) -> u32 {
        self.common.rounds.unwrap_or(ROUNDS)
    }

    fn operations(&self) -> Vec<Operation> {
        match self.operations.is_empty() {
            true => Operation::value_variants().to_vec(),
            false => self.operations.clone(),
        }
    }

    /// Writes the baseline, or compares with it.
    fn with_baseline(self) -> anyhow::Result<()> {
        let first = self.without_polling()?;
        let (committed, head) = match self.library {
            true => (LIBRARY_BASELINE, baseline::OF_LIBRARY),
            false => (BASELINE, baseline::OF_TRANSOMD),
        };
        let measure = || -> anyhow::Result<Baseline> {
            if self.library {
                return Ok(Baseline::of(&self.rows_of_library(&first)?));
            }
            let plan = Plan {
                candidates: vec![first.clone()],
                depths: vec![1],
                operations: Operation::value_variants().to_vec(),
                rounds: self.rounds(),
            };
            Ok(Baseline::of(&cost::measure(&plan, &self.common.shared_in)?))
        };
        let mut now = measure()?;
        if self.write_baseline.is_some() {
            for _ in 1..WRITTEN_OF {
                now = now.lowest(&measure()?);
            }
        }
        let or_committed = |path: Option<PathBuf>| path.unwrap_or_else(|| committed.into());
        if let Some(path) = self.write_baseline.map(or_committed) {
            fs::write(&path, now.to_text(head)).with_context(|| format!("writing {}", path.display()))?;
            println!("wrote {}", path.display());
            return Ok(());
        }
        let path = self.baseline.map(or_committed).context("no file")?;
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let worse = Baseline::parse(&text)?.worse(&now);
        if !worse.is_empty() {
            bail!(
                "more than {} allows:\n  {}\nto accept this, run this command with --write-baseline",
                path.display(),
                worse.join("\n  ")
            );
        }
        println!("ok: no operation costs more than {} allows", path.display());
        Ok(())
    }
}

impl Cost {
    /// Returns the first daemon, without polling if it is a transomd.
    fn without_polling(&self) -> anyhow::Result<Candidate> {
        let first = self.common.candidates()?.into_iter().next().context("no daemon")?;
        Ok(variants(&first, &[Polling::Off]).into_iter().next().unwrap_or(first))
    }

    fn rows_of_library(&self, candidate: &Candidate) -> anyhow::Result<Vec<Row>> {
        let this = std::env::current_exe().context("this program")?;
        let (candidate, operations) = (candidate.clone(), library::operations());
        let plan = library::Plan { program: &this, candidate, operations, rounds: self.rounds() };
        library::measure(&plan, &self.common.shared_in)
    }
}

/// Returns a transomd with and without polling, as selected, and any other daemon unchanged.
fn variants(candidate: &Candidate, polling: &[Polling]) -> Vec<Candidate> {
    let is_transomd = matches!(&candidate.source, Source::Program(program) if program.ends_with("transomd"));
    if !is_transomd {
        return vec![candidate.clone()];
    }
    let variant = |polling: &Polling| match polling {
        Polling::On => Candidate { name: format!("{}, polling", candidate.name), ..candidate.clone() },
        Polling::Off => {
            let args = candidate.args.iter().cloned().chain(["--poll-us".to_owned(), "0".to_owned()]).collect();
            Candidate { args, ..candidate.clone() }
        }
    };
    polling.iter().map(variant).collect()
}
