//! `transom-suite soak`: loads over a mount, a machine and the library with DAX at once, for hours, while daemons and
//! front ends are killed at random.
//!
//! A [`rig`] is a daemon with a front end and a [`load`] on a [`directory`] or the [`library`]. Memory, descriptors and
//! threads of each daemon are sampled and must be flat after the first tenth of the run, within a bound ([`samples`]).
//! The directory of a soak holds its files and samples; another run with the same directory continues it.

mod directory;
mod library;
mod load;
mod processes;
mod rig;
mod samples;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use clap::Args;
use directory::Directory;
use library::Library;
use load::End;
use rig::{Death, Kind, Programs, Rig};
use samples::{Sample, Samples};

use crate::{
    Verdict,
    guest::{INSIDE, Machine},
    interrupt::{self, Mounting},
    job::Job,
    places::{Common, Search},
    scenario::{Daemon, Guest, Scenario},
};

/// What a soak is told.
#[derive(Debug, Args)]
pub(crate) struct SoakArgs {
    /// End after this many hours, those of earlier runs in DIR included
    #[arg(long, value_name = "N", required_unless_present = "deaths")]
    hours: Option<f64>,

    /// End after this many deaths of each rig, whenever that is
    #[arg(long, value_name = "N")]
    deaths: Option<u64>,

    /// Where files, samples and the plot are; a run with the same directory continues
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// What is random follows from N
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Leave out a rig: mount, machine or library; may be repeated
    #[arg(long, value_name = "RIG")]
    without: Vec<String>,
}

/// Steps of a load between two deaths, if the run ends after a time, and if it ends after a number of deaths.
const STEPS_OF_HOURS: std::ops::Range<u64> = 200..20_000;
const STEPS_OF_DEATHS: std::ops::Range<u64> = 50..100;
/// Between two looks at the loads.
const TICK: Duration = Duration::from_millis(100);
/// Samples of each rig in a run of hours, or seconds between two if there would be more than one a second.
const SAMPLES: f64 = 2000.0;

/// Runs a soak. Errors: a rig broke, which says that data is wrong or something hangs.
pub(crate) fn run(args: &SoakArgs) -> anyhow::Result<Verdict> {
    anyhow::ensure!(rustix::process::geteuid().is_root(), "a soak mounts a share: run it as root");
    std::fs::create_dir_all(&args.dir).with_context(|| args.dir.display().to_string())?;
    let dir = args.dir.canonicalize().with_context(|| args.dir.display().to_string())?;
    let common = Common::new(None, Some(args.seed), None, Search::default())?;
    interrupt::watch(common.dir().to_owned())?;
    // A signal waits until the rigs have ended.
    let _mounting = Mounting::begin()?;
    let places = common.places(0)?;
    let programs = Programs { transom: places.executable("transom")?, transomd: places.executable("transomd")? };
    let mut samples = Samples::open(&dir)?;
    // Another part of the sequence in each run.
    let mut random = fastrand::Rng::with_seed(args.seed ^ samples.all.len() as u64);
    let mut rigs = Vec::new();
    let mut skipped = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| !args.without.iter().any(|name| name == kind.name())) {
        if let Some(why) = obstacle(kind, &common) {
            skipped.push(format!("SKIPPED: {}: {why}", kind.name()));
            continue;
        }
        // Short: it holds a socket.
        let rig = Rig::start(kind, dir.join(kind.name()), programs.clone(), random.u64(..))?;
        let (events, steps) = samples.counts(kind.name());
        rigs.push(Running { rig, events, steps, until_death: 0 });
    }
    anyhow::ensure!(!rigs.is_empty(), "no rig can run here: {skipped:?}");
    let names: Vec<&str> = rigs.iter().map(|running| running.rig.kind().name()).collect();
    let soaked = soak(args, &mut rigs, &mut samples, &mut random);
    // Also what was under way when it broke is worth a look.
    let plot = samples.plot(&names)?;
    let is_interrupted = interrupt::is_signalled();
    soaked.and_then(|()| rigs.into_iter().try_for_each(|running| running.rig.finish()))?;
    anyhow::ensure!(!is_interrupted, "interrupted; a run with the same --dir continues");
    let (mut remarks, is_flat) = samples.judge(&names);
    remarks.push(format!("{:.0} s, {} samples; the plot is {}", samples.seconds(), samples.all.len(), plot.display()));
    let mut verdict = Verdict { skipped: skipped.len(), ..Verdict::default() };
    if is_flat {
        verdict.passed = names.len()
    } else {
        verdict.failed = 1
    };
    verdict.remarks = skipped.into_iter().chain(remarks.into_iter().map(|line| format!("    {line}"))).collect();
    Ok(verdict)
}

/// A rig with what is counted of it.
struct Running {
    rig: Rig,
    events: u64,
    steps: u64,
    /// Steps until something dies.
    until_death: u64,
}

/// Samples and kills until the time is over, or there was a signal.
fn soak(
    args: &SoakArgs,
    rigs: &mut [Running],
    samples: &mut Samples,
    random: &mut fastrand::Rng,
) -> anyhow::Result<()> {
    let (begun, before) = (Instant::now(), samples.seconds());
    let end = args.hours.map(|hours| hours * 3600.0);
    let between_samples = end.map_or(0.2, |end| (end / SAMPLES).max(1.0));
    let range = if args.deaths.is_some() { STEPS_OF_DEATHS } else { STEPS_OF_HOURS };
    let mut next_sample = 0.0;
    rigs.iter_mut().for_each(|running| running.until_death = random.u64(range.clone()));
    while !interrupt::is_signalled() {
        let elapsed = begun.elapsed().as_secs_f64();
        let is_over = end.is_some_and(|end| before + elapsed >= end);
        let has_died = args.deaths.is_some_and(|deaths| rigs.iter().all(|running| running.events >= deaths));
        if is_over || has_died {
            break;
        }
        for running in rigs.iter_mut() {
            let done = running.rig.steps()?;
            running.steps += done;
            running.until_death = running.until_death.saturating_sub(done);
            if running.until_death == 0 && args.deaths.is_none_or(|deaths| running.events < deaths) {
                let death = if random.bool() { Death::Daemon } else { Death::FrontEnd };
                running.rig.suffer(death)?;
                running.events += 1;
                running.until_death = random.u64(range.clone());
            }
        }
        if elapsed >= next_sample {
            next_sample = elapsed + between_samples;
            for running in rigs.iter() {
                let usage = running.rig.usage();
                // Nothing runs for a moment after a death.
                if usage.threads > 0 {
                    let (events, steps) = (running.events, running.steps);
                    let rig = running.rig.kind().name().to_owned();
                    samples.add(Sample { seconds: before + elapsed, rig, usage, events, steps })?;
                }
            }
        }
        thread::sleep(TICK);
    }
    Ok(())
}

/// Why a rig cannot run here, if so.
fn obstacle(kind: Kind, common: &Common) -> Option<String> {
    match kind {
        Kind::Mount => (!Path::new("/dev/fuse").exists()).then(|| "there is no /dev/fuse".to_owned()),
        Kind::Machine => {
            let places = common.places(1).ok()?;
            Machine::prepare(&scenario(), &places).err().map(|error| format!("{error:#}"))
        }
        Kind::Library => None,
    }
}

/// The machine: the fastest guest there is.
fn scenario() -> Scenario {
    Scenario {
        guest: Guest::Uml,
        daemon: Daemon::Transomd,
        options: &["--cache=auto"],
        dax: None,
        job: Job::Cases,
        runs_by_default: false,
    }
}

/// Does the part of a process of a soak: a load, or a machine with one.
pub(crate) fn inside(words: &[&str]) -> ExitCode {
    let ended = match *words {
        ["soak-load", at, seed] => seed
            .parse()
            .map_err(|_| End::CutOff("not a number".into()))
            .and_then(|seed| load::run(&Directory(at.into()), seed, None)),
        ["soak-library", socket, seed] => use_library(Path::new(socket), seed),
        ["soak-machine", share, seed] => {
            boot(Path::new(share), seed).map_err(|error| End::CutOff(format!("{error:#}")))
        }
        _ => Err(End::CutOff(format!("no such part: {words:?}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(end) => {
            eprintln!("{end}");
            ExitCode::from(if matches!(end, End::Wrong(_)) { load::IS_WRONG } else { load::IS_CUT_OFF })
        }
    }
}

fn use_library(socket: &Path, seed: &str) -> Result<(), End> {
    let cut_off = |error: anyhow::Error| End::CutOff(format!("{error:#}"));
    let library = Library::connect(socket).map_err(cut_off)?;
    load::run(&library, seed.parse().map_err(|_| End::CutOff("not a number".into()))?, None)
}

/// Boots a machine with the load on `share`. Errors: as its load says, which is a part of the message.
fn boot(share: &Path, seed: &str) -> anyhow::Result<()> {
    let common = Common::new(None, None, None, Search::default())?;
    interrupt::watch(common.dir().to_owned())?;
    let places = common.places(0)?;
    let machine = Machine::prepare(&scenario(), &places)?;
    let machine = machine.as_virtual()?;
    let command = ["/init", INSIDE, "soak-load", "/share", seed];
    let outcome = machine.run_with(vec![machine.share(share, "/share")], &command)?;
    anyhow::bail!("status {}: {}", outcome.exit_code, String::from_utf8_lossy(&outcome.stderr))
}

#[cfg(test)]
#[path = "soak_test.rs"]
mod soak_test;
