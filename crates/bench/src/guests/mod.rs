//! The guests under which daemons are measured, and the rounds over them.
//!
//! [`Guest`] is one kind: [`user`] is the guest library in this process, [`mount`] this machine's kernel by a mount of
//! the share, [`vm`] Linux in User Mode Linux or QEMU; [`host`] is the bare directory beside them. Every round measures
//! everything once, so that who stops early has all scenarios, with fewer rounds. [`observed`] reads the daemon's
//! processor time around each workload.

pub mod host;
pub mod mount;
pub mod observed;
pub mod user;
pub mod vm;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use indicatif::ProgressBar;
use transom_vm::CacheMode;

use crate::{
    daemon::Candidate,
    progress,
    report::{HOST, Measure, Sample},
    workload::{self, Group, Params, line::Line},
};
use observed::Observations;

/// Why other guests refuse a candidate with options of a mount.
const ONLY_MOUNTS: &str = "only a mount has mount options";

/// A kind of guest.
pub trait Guest {
    /// For the names of scenarios; placement included.
    fn name(&self) -> String;
    /// Why this guest cannot be measured with this daemon, if it cannot.
    fn objection(&self, candidate: &Candidate) -> Option<String>;
    /// Why this guest can do these workloads with none of `candidates`, if it cannot.
    fn lacks(&self, group: Group, candidates: &[&Candidate]) -> Option<&'static str>;
    /// Runs the workloads once over a daemon that shares a directory.
    fn run(&self, run: &Run<'_>) -> anyhow::Result<Observations>;
    /// Runs them on the bare directory, on the same core.
    fn run_on_host(&self, run: &Run<'_>) -> anyhow::Result<Observations>;
}

/// One daemon, one part of a suite, one round.
pub struct Run<'a> {
    /// The daemon; `None` for the bare directory.
    pub candidate: Option<&'a Candidate>,
    /// What is shared.
    pub shared: &'a Path,
    /// The daemon's cache mode.
    pub cache: CacheMode,
    /// What is done.
    pub params: &'a Params,
    /// Advances by one for each workload.
    pub bar: &'a ProgressBar,
    /// Set when a signal has asked to stop.
    pub is_stopped: &'a Arc<AtomicBool>,
}

/// What to measure.
pub struct Plan {
    /// The first one is compared with each other one.
    pub candidates: Vec<Candidate>,
    /// The guests.
    pub guests: Vec<Box<dyn Guest>>,
    /// The daemons' cache modes.
    pub caches: Vec<CacheMode>,
    /// Rounds over all of it.
    pub rounds: u32,
    /// What is done, in parts that do not share a guest.
    pub parts: Vec<Params>,
}

/// Why measuring ended early: a signal asked for it.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// What was measured.
#[derive(Debug, Default)]
pub struct Measured {
    /// All samples.
    pub samples: Vec<Sample>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
    /// Rounds that were measured wholly.
    pub whole_rounds: u32,
    /// Daemons that failed under some guest, and why; the later rounds are without them there.
    pub failures: Vec<String>,
}

/// A guest, a cache mode, a part, and the daemons that go with them.
struct Step<'a> {
    guest: &'a dyn Guest,
    cache: CacheMode,
    params: Params,
    candidates: Vec<&'a Candidate>,
}

impl Step<'_> {
    fn scenario(&self) -> String {
        format!("{}, cache={}", self.guest.name(), self.cache.as_str())
    }
}

/// Measures `plan` in a fresh directory below `parent`. A signal ends it early; what was measured by then is returned.
/// A daemon that fails under a guest is left out there from then on; where the bare directory fails, that ends it.
///
/// Errors: nothing was measured.
pub fn measure(plan: &Plan, parent: &Path, is_stopped: &Arc<AtomicBool>) -> anyhow::Result<Measured> {
    let mut measured = Measured::default();
    let mut steps = steps(plan, &mut measured.notes);
    let workloads: usize = steps.iter().map(|step| step.params.workload_count() * (step.candidates.len() + 1)).sum();
    let bar = progress::bar(workloads as u64 * u64::from(plan.rounds));
    let result = (0..plan.rounds).try_for_each(|repetition| {
        round(&mut steps, repetition, parent, &bar, is_stopped, &mut measured)?;
        measured.whole_rounds += 1;
        Ok(())
    });
    bar.finish_and_clear();
    match result {
        // Whatever failed, failed because everything was to end.
        Err(_) if is_stopped.load(Ordering::Relaxed) => Ok(measured),
        Err(error) if !measured.samples.is_empty() => {
            measured.failures.push(one_line(&error));
            Ok(measured)
        }
        result => result.map(|()| measured),
    }
}

/// What there is to do in a round; what cannot be done is told in `notes`, once.
fn steps<'a>(plan: &'a Plan, notes: &mut Vec<String>) -> Vec<Step<'a>> {
    let mut note = |text: String| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    };
    let mut steps = Vec::new();
    for guest in plan.guests.iter().map(AsRef::as_ref) {
        let mut candidates = Vec::new();
        for candidate in &plan.candidates {
            match guest.objection(candidate) {
                Some(reason) => note(format!("not measured: {} under {}: {reason}", candidate.name, guest.name())),
                None => candidates.push(candidate),
            }
        }
        for &cache in &plan.caches {
            for part in &plan.parts {
                let mut params = part.clone();
                params.groups.retain(|group| match guest.lacks(*group, &candidates) {
                    Some(reason) => {
                        note(format!("not measured: {} under {}: {reason}", group.title(), guest.name()));
                        false
                    }
                    None => true,
                });
                if !params.groups.is_empty() && !candidates.is_empty() {
                    steps.push(Step { guest, cache, params, candidates: candidates.clone() });
                }
            }
        }
    }
    steps
}

fn round(
    steps: &mut [Step<'_>],
    repetition: u32,
    parent: &Path,
    bar: &ProgressBar,
    is_stopped: &Arc<AtomicBool>,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    for at in 0..steps.len() {
        let step = &steps[at];
        if step.candidates.is_empty() {
            continue;
        }
        let (scenario, mut failed) = (step.scenario(), Vec::new());
        let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
        workload::make_many(shared.path(), &step.params, is_stopped)?;
        for candidate in step.candidates.iter().copied().map(Some).chain([None]) {
            let name = candidate.map_or(HOST, |candidate| candidate.name.as_str());
            bar.set_message(format!("round {}: {scenario}: {name}", repetition + 1));
            let params = &Params { dir: format!("work-{name}"), ..step.params.clone() };
            let run = Run { candidate, shared: shared.path(), cache: step.cache, params, bar, is_stopped };
            let result = match candidate {
                Some(_) => step.guest.run(&run),
                None => step.guest.run_on_host(&run),
            };
            if is_stopped.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            match result {
                Ok(observations) => measured.samples.extend(
                    observations.into_iter().map(|(line, cpu_ns)| sample(&scenario, name, repetition, line, cpu_ns)),
                ),
                Err(error) if candidate.is_some() => {
                    let error = error.context(format!("{scenario}: {name} failed in round {}", repetition + 1));
                    bar.suspend(|| eprintln!("{error:#}"));
                    measured.failures.push(one_line(&error));
                    failed.push(name.to_owned());
                    // What it leaves takes the others' room.
                    let _ = std::fs::remove_dir_all(shared.path().join(&params.dir));
                }
                Err(error) => return Err(error.context(format!("{scenario}: {name}"))),
            }
        }
        for step in steps.iter_mut().filter(|step| step.scenario() == scenario) {
            step.candidates.retain(|candidate| !failed.contains(&candidate.name));
        }
    }
    Ok(())
}

/// An error with its causes, for a table's notes.
fn one_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().collect::<Vec<_>>().join(" | ")
}

fn sample(scenario: &str, daemon: &str, repetition: u32, line: Line, cpu_ns: Option<u64>) -> Sample {
    let (workload, measure, refusal) = match line {
        Line::Result(timing) => {
            let ops = timing.ops.max(1);
            let measure = Measure {
                ops: timing.ops,
                bytes_per_op: timing.bytes / ops,
                ops_per_s: timing.ops_per_s,
                latency_p50_ns: timing.latency_p50_ns as f64,
                latency_p99_ns: timing.latency_p99_ns as f64,
                latency_counts: timing.latency_counts,
                daemon_cpu_ns_per_op: cpu_ns.map(|cpu_ns| cpu_ns as f64 / ops as f64),
            };
            (timing.workload, Some(measure), None)
        }
        Line::Refused { workload, reason } => (workload, None, Some(reason)),
        Line::Begin { workload } => (workload, None, Some("it began and said no more".into())),
        Line::End => unreachable!("`observed::complete` took it off"),
    };
    Sample { scenario: scenario.to_owned(), workload, daemon: daemon.to_owned(), repetition, measure, refusal }
}
