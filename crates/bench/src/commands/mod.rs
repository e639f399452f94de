//! The commands of `transom bench`, from options to a report; one file for each subcommand.
//!
//! Without a subcommand, [`measure`] runs a suite. The subcommands measure one aspect each and are for developers of a
//! daemon.

mod burst;
mod compare;
mod cost;
mod fio;
mod library;
mod measure;
mod memory;
mod polling;
mod round_trip;
mod smoke;

use std::{
    env, io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use transom_vm::packages::{Cache, OnStderr, Packages};

use crate::{
    daemon::{Candidate, Wanted},
    limits,
    memory::{MemoryReport, markdown as memory_markdown},
    report::{Facts, Report, SCHEMA, Sample, Version, markdown, picture},
    workload::{self, Params, place::Forget},
};

/// Compare virtio-fs daemons with each other and with the host's own file system.
///
/// Rounds alternate between the daemons and the bare directory. The result shows medians, ratios computed for each
/// round, and confidence intervals in brackets. If the spread hides a difference, it says `unclear` instead of a ratio.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = measure::EXAMPLES)]
pub struct Bench {
    #[command(flatten)]
    measure: measure::Measure,
    #[command(subcommand)]
    single: Option<Single>,
}

#[derive(Debug, Subcommand)]
enum Single {
    /// Compare two result files.
    Compare(compare::Compare),
    /// Make page and tables from a result file again.
    Render {
        /// The result file: NAME.json.
        results: PathBuf,
        /// Write the page there instead of printing the tables.
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Write a small picture of the ratios there, as SVG.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
    },
    /// What daemons execute for a request: instructions, system calls, allocations, copies, wakes.
    Cost(cost::Cost),
    /// Do an operation of the guest library for each byte on standard input: what `cost --library` counts.
    #[command(hide = true)]
    CostLibrary {
        /// The daemon's socket.
        socket: PathBuf,
        /// What to do.
        operation: crate::library::Operation,
    },
    /// Measure daemons alone, by requests from a driver without a guest.
    RoundTrip(round_trip::RoundTrip),
    /// Measure operations of the guest library, by threads of this process.
    Library(library::Library),
    /// Run fio in a Linux guest under QEMU: with and without DAX, other daemons, 9p.
    Fio(fio::Fio),
    /// Measure the daemons' memory with very many inodes.
    Memory(memory::Memory),
    /// Compare settings of --poll-us: speed, processor time and wakes with idle and busy guests, and on a busy host.
    Polling(polling::Polling),
    /// Run everything once, at minimal size.
    #[command(hide = true)]
    Smoke(smoke::Smoke),
    /// Run workloads in a directory and print a JSON line for each: what runs inside a guest.
    #[command(hide = true)]
    Workload {
        /// The directory.
        dir: PathBuf,
        /// What to do, as JSON.
        #[arg(value_parser = |text: &str| serde_json::from_str::<Params>(text))]
        params: Params,
        /// How caches are emptied.
        #[arg(long, value_enum, default_value_t = Forget::Nothing)]
        forget: Forget,
    },
}

impl Bench {
    /// Runs the command. Exit status: 0; 1 if something failed; those of `compare` are in its help.
    pub fn execute(self) -> ExitCode {
        let result = match self.single {
            None => self.measure.run(),
            Some(Single::Compare(compare)) => return compare.execute(),
            Some(single) => single.run().map(|()| ExitCode::SUCCESS),
        };
        result.unwrap_or_else(|error| {
            eprintln!("transom bench: {error:#}");
            ExitCode::FAILURE
        })
    }
}

impl Single {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Compare(_) => unreachable!("handled above"),
            Self::Render { results, html, svg } => render(&results, html.as_deref(), svg.as_deref()),
            Self::RoundTrip(command) => command.run(),
            Self::Cost(command) => command.run(),
            Self::CostLibrary { socket, operation } => crate::cost::library::serve(&socket, operation),
            Self::Library(command) => command.run(),
            Self::Fio(command) => command.run(),
            Self::Memory(command) => command.run(),
            Self::Polling(command) => command.run(),
            Self::Smoke(command) => command.run(),
            Self::Workload { dir, params, forget } => {
                Ok(workload::run_in_directory(&dir, &params, forget, io::stdout())?)
            }
        }
    }
}

fn render(results: &Path, html: Option<&Path>, svg: Option<&Path>) -> anyhow::Result<()> {
    if let Ok(report) = serde_json::from_slice::<MemoryReport>(&std::fs::read(results).unwrap_or_default()) {
        print!("{}", memory_markdown(&report));
        return Ok(());
    }
    let report = Report::read(results)?;
    if let Some(path) = html {
        std::fs::write(path, crate::report::html(&report))?;
    }
    if let Some(path) = svg {
        let image = picture(&report).context("one daemon: there is nothing to compare it with")?;
        std::fs::write(path, image)?;
    }
    if html.is_none() && svg.is_none() {
        print!("{}", markdown(&report));
    }
    Ok(())
}

/// Options common to all comparisons.
#[derive(Debug, Args)]
struct Common {
    /// A daemon: transomd, virtiofsd (1.14, built if needed), virtiofsd-c (of QEMU 7.2), or a program with virtiofsd's
    /// command line; the first one is compared with each other [default: transomd, virtiofsd]
    #[arg(long = "daemon", value_name = "[NAME=]PROGRAM [ARGUMENT...]")]
    daemons: Vec<Wanted>,
    /// Where to create the shared directory.
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    shared_in: PathBuf,
    /// Number of rounds; fewer than five give no ratios [default: that of the suite, otherwise 9]
    #[arg(long)]
    rounds: Option<u32>,
    /// Directory for NAME.json, NAME.md and NAME.html.
    #[arg(long, value_name = "DIR", default_value = "bench-results")]
    out: PathBuf,
    /// Name of these files [default: that of the suite or the subcommand]
    #[arg(long)]
    name: Option<String>,
}

/// The default number of rounds.
const ROUNDS: u32 = 9;

impl Common {
    /// Returns the selected daemons, or the usual two.
    fn candidates(&self) -> anyhow::Result<Vec<Candidate>> {
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let packages = Packages::new(&cache, &report);
        let usual = Wanted::usual();
        let wanted = if self.daemons.is_empty() { &usual } else { &self.daemons };
        wanted.iter().map(|wanted| wanted.find(&packages)).collect()
    }

    fn rounds(&self) -> u32 {
        self.rounds.unwrap_or(ROUNDS)
    }

    /// Combines samples with the machine's limits and facts.
    fn report(
        &self,
        title: &str,
        candidates: &[Candidate],
        guest_kernel: Option<String>,
        notes: Vec<String>,
        samples: Vec<Sample>,
    ) -> anyhow::Result<Report> {
        let limits_dir = tempfile::tempdir_in(&self.shared_in)?;
        Ok(Report {
            schema: SCHEMA,
            title: title.to_owned(),
            command: command_line(),
            facts: Facts::collect(guest_kernel, &self.shared_in),
            daemons: candidates.iter().map(Version::of).collect(),
            limits: limits::measure(limits_dir.path())?,
            notes,
            samples,
        })
    }

    /// Writes the files and prints the tables.
    fn tell(&self, title: &str, name: &str, candidates: &[Candidate], samples: Vec<Sample>) -> anyhow::Result<()> {
        let report = self.report(title, candidates, None, Vec::new(), samples)?;
        report.write(&self.out, self.name.as_deref().unwrap_or(name))?;
        print!("{}", markdown(&report));
        Ok(())
    }
}

/// Returns the command line of this program, without the directories of programs, which mean nothing elsewhere.
fn command_line() -> Vec<String> {
    std::iter::once("transom".to_owned())
        .chain(env::args().skip(1))
        .map(|word| {
            let short = |path: &str| match path.starts_with('/') {
                true => path.rsplit('/').next().unwrap_or(path).to_owned(),
                false => path.to_owned(),
            };
            match word.split_once(' ') {
                Some((program, args)) => match program.split_once('=') {
                    Some((name, program)) => format!("'{name}={} {args}'", short(program)),
                    None => format!("'{} {args}'", short(program)),
                },
                None => match word.split_once('=') {
                    Some((name, value)) => format!("{name}={}", short(value)),
                    None if word.contains('/') => short(&word),
                    None => word,
                },
            }
        })
        .collect()
}
