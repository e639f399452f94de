//! `transom-suite`: the tests that need a Linux guest or a mount, by guest, daemon and cache mode.
//!
//! A [`Scenario`] is one boot: a guest, a daemon with its options, and a job. The list of file-system cases ([`cases`])
//! and pjdfstest ([`pjdfstest`]) run on the bare host directory first, and pass if the guest's results are equal
//! ([`judge`]). Cases are [`split`] between two mounts, and guests of one directory look for a [`stale`] answer.
//! Programs with two callers ([`two_callers`]) and third-party programs ([`foreign`]) run on mounts. The jobs of
//! [`window`] and [`fsx`] are about DAX, those of [`pmem`] about a share on an NVDIMM. What takes hours or a checkout
//! has a command of its own: [`soak`], [`trees`]. This executable is also the init process of its guests, and the
//! program that runs in them.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cases;
mod foreign;
mod fsx;
mod guest;
mod interrupt;
mod job;
mod judge;
mod mounted;
mod overlay;
mod pjdfstest;
mod places;
mod pmem;
mod progress;
mod scenario;
mod soak;
mod split;
mod stale;
mod trees;
mod two_callers;
mod window;

use std::{
    num::NonZero,
    process::ExitCode,
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use guest::Machine;
use job::Job;
use nix::sys::resource::{UsageWho, getrusage};
use places::{Common, Search};
use progress::Progress;
use scenario::Scenario;

/// Runs file-system tests in Linux guests over virtio-fs and compares them with the bare host directory.
///
/// Scenarios are named GUEST/DAEMON/OPTIONS/JOB. Without a filter those of `make test` run.
#[derive(Debug, Parser)]
#[command(name = "transom-suite", version, max_term_width = 100, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Long>,

    /// Run the scenarios whose name contains one of these
    filters: Vec<String>,

    /// Run all scenarios, the long ones too; some hours
    #[arg(long)]
    all: bool,

    /// Print the names of the scenarios that would run, and end
    #[arg(long)]
    list: bool,

    /// Leave what each scenario came to in FILE, and run only those that did not pass by what it says
    #[arg(long, value_name = "FILE")]
    resume: Option<std::path::PathBuf>,

    /// Leave the results of each scenario in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<std::path::PathBuf>,

    /// What is random follows from N, which is told with the results [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run N programs in each scenario of two callers [default: as many as suit `make test`]
    #[arg(long, value_name = "N")]
    programs: Option<u64>,

    /// Look for stale answers for HOURS instead of the number of rounds that the scenario's name says
    #[arg(long, value_name = "HOURS")]
    hours: Option<f64>,

    /// Look at all files N times after each change, in the search for stale answers
    #[arg(long, value_name = "N")]
    looks: Option<u64>,

    /// Add what the search for stale answers comes to to the figures in FILE, every few seconds
    #[arg(long, value_name = "FILE")]
    sum: Option<std::path::PathBuf>,

    /// Run a scenario that fails a second time, and let that decide; a line `AGAIN: …` says so
    #[arg(long)]
    second_try: bool,

    /// How many guests run at a time; with 1, the processor time of each scenario is told
    #[arg(long, value_name = "N", default_value_t = default_jobs())]
    jobs: NonZero<usize>,
}

/// What is no scenario, and runs by name only.
#[derive(Debug, clap::Subcommand)]
enum Long {
    /// Load a mount, a machine and the library with DAX for hours while daemons and front ends are killed
    Soak(soak::SoakArgs),
    /// Run a built checkout of xfstests over mounts
    Xfstests(trees::TreeArgs),
    /// Run an installed LTP over a mount
    Ltp(trees::TreeArgs),
}

impl Long {
    fn run(&self) -> anyhow::Result<ExitCode> {
        let verdict = match self {
            Self::Soak(args) => soak::run(args),
            Self::Xfstests(args) => trees::xfstests(args),
            Self::Ltp(args) => trees::ltp(args),
        }?;
        verdict.remarks.iter().for_each(|remark| println!("{remark}"));
        let Verdict { passed, failed, skipped, known, .. } = verdict;
        println!("{passed} passed, {failed} failed, {skipped} skipped, {known} known");
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// How a scenario ended; the numbers count the tests within.
#[derive(Debug, Default, Clone)]
struct Verdict {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// Differences that the allow lists explain.
    known: usize,
    /// What failed, a line each.
    remarks: Vec<String>,
}

fn main() -> ExitCode {
    transom_vm::agent::run_if_init();
    if let Some(status) = window::run_if_inside() {
        return status;
    }
    let cli = Cli::parse();
    work(cli).unwrap_or_else(|error| {
        eprintln!("transom-suite: {error:#}");
        ExitCode::from(2)
    })
}

/// Does what the command line asks for. Errors: it asks for nothing that there is, or no scenario can run here.
fn work(cli: Cli) -> anyhow::Result<ExitCode> {
    if let Some(command) = &cli.command {
        return command.run();
    }
    let is_chosen = |scenario: &Scenario| match cli.filters.as_slice() {
        [] => scenario.runs_by_default || cli.all,
        filters => filters.iter().any(|filter| scenario.name().contains(filter.as_str())),
    };
    let chosen: Vec<_> = scenario::all().into_iter().filter(is_chosen).collect();
    anyhow::ensure!(!chosen.is_empty(), "no scenario has such a name; --all --list prints them");
    if cli.list {
        chosen.iter().for_each(|scenario| println!("{}", scenario.name()));
        return Ok(ExitCode::SUCCESS);
    }
    let common =
        Common::new(cli.keep, cli.seed, cli.programs, Search { hours: cli.hours, looks: cli.looks, sum: cli.sum })?;
    interrupt::watch(common.dir().to_owned())?;
    let progress = cli.resume.as_deref().map(Progress::open).transpose()?;
    let tries = if cli.second_try { 2 } else { 1 };
    let is_busy_told = cli.jobs == NonZero::<usize>::MIN;
    let mut run = Run { common, progress, tries, is_busy_told, sum: Verdict::default() };
    let is_named = |scenario: &Scenario| cli.filters.contains(&scenario.name());
    let (left_out, chosen): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|scenario| scenario.defect_of_guest().is_some() && !is_named(scenario));
    left_out.iter().for_each(|scenario| run.leave_out(scenario));
    let left = chosen.into_iter().enumerate().filter(|(_, scenario)| !run.has_passed(scenario)).collect::<Vec<_>>();
    let (alone, others): (Vec<_>, Vec<_>) = left.into_iter().partition(|(_, scenario)| scenario.job.is_alone());
    run.all(others, cli.jobs)?;
    run.all(alone, NonZero::<usize>::MIN)?;
    println!("{} passed, {} failed, {} skipped", run.sum.passed, run.sum.failed, run.sum.skipped);
    Ok(if run.sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One more than there are processors, because guests wait for a part of their time, but at most four, for memory.
fn default_jobs() -> NonZero<usize> {
    const MOST: NonZero<usize> = NonZero::new(4).expect("4 is not 0");
    thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN).saturating_add(1).min(MOST)
}

/// One run of the suite.
struct Run {
    common: Common,
    progress: Option<Progress>,
    /// How often a scenario may run until it passes.
    tries: usize,
    /// Scenarios run one at a time, so that each can tell how much processor time it took.
    is_busy_told: bool,
    /// Of all scenarios that have ended, those of earlier runs too.
    sum: Verdict,
}

impl Run {
    /// Whether `scenario` passed in an earlier run, which is told and counted.
    fn has_passed(&mut self, scenario: &Scenario) -> bool {
        let Some((verdict, took)) = self.progress.as_ref().and_then(|progress| progress.passed(scenario)) else {
            return false;
        };
        tell(scenario, verdict, took, "then");
        self.sum.add(verdict);
        true
    }

    /// Tells and counts a scenario that runs only if it is named.
    fn leave_out(&mut self, scenario: &Scenario) {
        let verdict = Verdict::skipped(scenario.defect_of_guest().unwrap_or_default());
        tell(scenario, &verdict, Duration::ZERO, "ok");
        self.sum.add(&verdict);
    }

    /// Runs numbered scenarios, `jobs` at a time; each is told when it ends.
    ///
    /// Errors: what they came to cannot be kept.
    fn all(&mut self, scenarios: Vec<(usize, Scenario)>, jobs: NonZero<usize>) -> anyhow::Result<()> {
        let Self { common, progress, tries, is_busy_told, sum } = self;
        let (common, tries, is_busy_told) = (&*common, *tries, *is_busy_told);
        let waiting = Mutex::new(scenarios.into_iter());
        let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let (ends, ended) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..jobs.get() {
                let ends = ends.clone();
                scope.spawn(move || {
                    while let Some((number, scenario)) = take() {
                        let (begun, busy_before) = (Instant::now(), busy_time());
                        let mut verdict = run_until_passed(number, &scenario, common, tries);
                        if is_busy_told {
                            let busy = busy_time() - busy_before;
                            verdict.remarks.push(format!("    busy {} s", busy.as_secs()));
                        }
                        // Whoever listens does so until the last sender is gone.
                        let _ = ends.send((scenario, verdict, begun.elapsed()));
                    }
                });
            }
            drop(ends);
            for (scenario, verdict, took) in ended {
                tell(&scenario, &verdict, took, if verdict.failed > 0 { "FAIL" } else { "ok" });
                sum.add(&verdict);
                if let Some(progress) = progress {
                    progress.add(&scenario, &verdict, took)?;
                }
            }
            Ok(())
        })
    }
}

/// Returns the processor time of this process and of the processes that it has waited for.
fn busy_time() -> Duration {
    let of = |who| {
        getrusage(who).map_or(Duration::ZERO, |usage| {
            let time = usage.user_time() + usage.system_time();
            Duration::new(time.tv_sec().cast_unsigned(), time.tv_usec() as u32 * 1000)
        })
    };
    of(UsageWho::RUSAGE_SELF) + of(UsageWho::RUSAGE_CHILDREN)
}

/// Prints a line about a scenario; `mark` is `then` for one of an earlier run.
fn tell(scenario: &Scenario, verdict: &Verdict, took: Duration, mark: &str) {
    println!(
        "{mark:4} {:46} {:4} passed {:3} failed {:3} skipped {:3} known {:6.1} s",
        scenario.name(),
        verdict.passed,
        verdict.failed,
        verdict.skipped,
        verdict.known,
        took.as_secs_f64()
    );
    verdict.remarks.iter().for_each(|remark| println!("{remark}"));
}

/// Runs a scenario up to `tries` times. The last verdict counts; the remarks of the others say why there were others.
/// A line `AGAIN` says that it has passed then.
fn run_until_passed(number: usize, scenario: &Scenario, common: &Common, tries: usize) -> Verdict {
    let mut earlier = Vec::new();
    loop {
        let mut verdict = run(number, scenario, common);
        let tried = 1 + earlier.len();
        if verdict.failed > 0 && tried < tries {
            earlier.push(verdict.remarks);
            continue;
        }
        if verdict.failed == 0 && tried > 1 {
            verdict.remarks.insert(0, format!("AGAIN: {} failed, and passed at a second try", scenario.name()));
        }
        let told = earlier.into_iter().flatten();
        verdict.remarks.extend(told.map(|remark| format!("    first try: {}", remark.trim_start())));
        return verdict;
    }
}

fn run(number: usize, scenario: &Scenario, common: &Common) -> Verdict {
    let places = match common.places(number) {
        Ok(places) => places,
        Err(error) => return Verdict::failed(&format!("{error:#}")),
    };
    let places = &places;
    let machine = match Machine::prepare(scenario, places) {
        Ok(machine) => machine,
        Err(reason) => return Verdict::skipped(&format!("{reason:#}")),
    };
    let result = match scenario.job {
        Job::Cases => cases::run(scenario, &machine, places),
        Job::Pjdfstest => pjdfstest::run(scenario, &machine, places),
        Job::TwoCallers(programs) => two_callers::run(scenario, &machine, places, programs),
        Job::SplitCases => machine.as_mounted().and_then(|mounted| split::run(scenario, mounted, places)),
        Job::Stale { rounds, is_checked } => {
            machine.as_mounted().and_then(|mounted| stale::run(mounted, places, rounds, is_checked))
        }
        Job::Fsx(seconds) => machine.as_virtual().and_then(|machine| fsx::run(scenario, machine, places, seconds)),
        Job::Foreign(program) => {
            machine.as_mounted().and_then(|mounted| foreign::run(scenario, program, mounted, places))
        }
        Job::Crashes { .. } | Job::SyncFaults { .. } => {
            machine.as_virtual().and_then(|machine| pmem::run(scenario, machine, places))
        }
        _ => machine.as_virtual().and_then(|machine| window::run(scenario, machine, places)),
    };
    result.unwrap_or_else(|error| Verdict::failed(&format!("{error:#}")))
}

impl Verdict {
    /// Adds the numbers of another.
    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.known += other.known;
    }

    /// The scenario could not run here at all.
    fn skipped(reason: &str) -> Self {
        Self { skipped: 1, remarks: vec![format!("SKIPPED: {reason}")], ..Self::default() }
    }

    /// The scenario is one test, which passed; `figures` are worth a line.
    fn passed(figures: Option<String>) -> Self {
        Self { passed: 1, remarks: figures.into_iter().map(|line| format!("    {line}")).collect(), ..Self::default() }
    }

    /// The scenario ran and came to nothing.
    fn failed(reason: &str) -> Self {
        Self { failed: 1, remarks: vec![format!("    {reason}")], ..Self::default() }
    }
}
