//! `transom-suite`: the tests that need a Linux guest, or a mount, by guest, daemon and cache mode.
//!
//! A [`Scenario`] is one boot: a guest, a daemon with its options, and a job in it. The list of file-system cases
//! ([`cases`]) and pjdfstest ([`pjdfstest`]) run on the bare host directory first, and pass when the guest's results
//! equal those ([`judge`]). Programs of two callers ([`two_callers`]) run on mounts. The jobs of [`window`] and [`fsx`] are about DAX, those of [`pmem`] about a share on an NVDIMM. This executable is also the first process
//! of its guests, and the program that runs in them.

mod cases;
mod fsx;
mod guest;
mod interrupt;
mod judge;
mod mounted;
mod pjdfstest;
mod places;
mod pmem;
mod scenario;
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
use places::Common;
use scenario::{Daemon, Job, Scenario};

/// Runs file-system tests in Linux guests over virtio-fs and compares them with the bare host directory.
///
/// Scenarios are named GUEST/DAEMON/OPTIONS/JOB. Without a filter those of transomd run.
#[derive(Debug, Parser)]
#[command(name = "transom-suite", version, max_term_width = 100)]
struct Cli {
    /// Run the scenarios whose name contains one of these; those of other daemons only run when named
    filters: Vec<String>,

    /// Run all scenarios of transomd, the long ones too; some hours
    #[arg(long)]
    all: bool,

    /// Print the names of all scenarios and end
    #[arg(long)]
    list: bool,

    /// Leave the results of each scenario in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<std::path::PathBuf>,

    /// What is random follows from N, which is told with the results [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Run N programs in each scenario of two callers [default: as many as suit `make test`]
    #[arg(long, value_name = "N")]
    programs: Option<u64>,

    /// How many guests run at a time
    #[arg(long, value_name = "N", default_value_t = default_jobs())]
    jobs: NonZero<usize>,
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
    let all = scenario::all();
    if cli.list {
        all.iter().for_each(|scenario| println!("{}", scenario.name()));
        return ExitCode::SUCCESS;
    }
    let is_chosen = |scenario: &Scenario| match cli.filters.as_slice() {
        [] => scenario.runs_by_default || cli.all && scenario.daemon == Daemon::Transomd,
        filters => filters.iter().any(|filter| scenario.name().contains(filter.as_str())),
    };
    let chosen: Vec<_> = all.into_iter().filter(is_chosen).collect();
    if chosen.is_empty() {
        eprintln!("transom-suite: no scenario has such a name; --list prints them");
        return ExitCode::from(2);
    }
    let common = Common::new(cli.keep, cli.seed, cli.programs);
    let watched = common.and_then(|common| interrupt::watch(common.dir().to_owned()).map(|()| common));
    let common = match watched {
        Ok(common) => common,
        Err(error) => {
            eprintln!("transom-suite: {error:#}");
            return ExitCode::from(2);
        }
    };
    let (alone, others): (Vec<_>, Vec<_>) =
        chosen.into_iter().enumerate().partition(|(_, scenario)| scenario.job.is_alone());
    let mut sum = Verdict::default();
    run_all(others, &common, cli.jobs, &mut sum);
    run_all(alone, &common, NonZero::<usize>::MIN, &mut sum);
    println!("{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// So many as there are processors, each of which a guest keeps busy, and as memory is likely to hold.
fn default_jobs() -> NonZero<usize> {
    const MOST: NonZero<usize> = NonZero::new(4).expect("4 is not 0");
    thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN).min(MOST)
}

/// Runs numbered scenarios, `jobs` at a time; each is told when it ends.
fn run_all(scenarios: Vec<(usize, Scenario)>, common: &Common, jobs: NonZero<usize>, sum: &mut Verdict) {
    let waiting = Mutex::new(scenarios.into_iter());
    let take = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let (ends, ended) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..jobs.get() {
            let ends = ends.clone();
            scope.spawn(move || {
                while let Some((number, scenario)) = take() {
                    let begun = Instant::now();
                    let verdict = run(number, &scenario, common);
                    // Whoever listens does so until the last sender is gone.
                    let _ = ends.send((scenario, verdict, begun.elapsed()));
                }
            });
        }
        drop(ends);
        for (scenario, verdict, took) in ended {
            tell(&scenario, &verdict, took);
            sum.passed += verdict.passed;
            sum.failed += verdict.failed;
            sum.skipped += verdict.skipped;
        }
    });
}

fn tell(scenario: &Scenario, verdict: &Verdict, took: Duration) {
    let mark = if verdict.failed > 0 { "FAIL" } else { "ok" };
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
        Job::Fsx(seconds) => machine.as_virtual().and_then(|machine| fsx::run(scenario, machine, places, seconds)),
        Job::Crashes { .. } | Job::SyncFaults { .. } => {
            machine.as_virtual().and_then(|machine| pmem::run(scenario, machine, places))
        }
        _ => machine.as_virtual().and_then(|machine| window::run(scenario, machine, places)),
    };
    result.unwrap_or_else(|error| Verdict::failed(&format!("{error:#}")))
}

impl Verdict {
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
