//! The guests in which daemons are measured, and the rounds over them.
//!
//! [`Guest`] is one kind: [`user`] is the guest library in this process, [`mount`] is this machine's kernel with the
//! share mounted, and [`vm`] is Linux in User Mode Linux or QEMU. [`host`] is the bare directory, for comparison. Every
//! round measures everything once, so that a run that is stopped early has all scenarios, with fewer rounds.
//! [`observed`] reads the daemon's processor time around each workload.

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

/// Why other guests reject a candidate with mount options.
const ONLY_MOUNTS: &str = "only a mount has mount options";

/// A kind of guest.
pub trait Guest {
    /// Returns the name used in scenarios, including the placement.
    fn name(&self) -> String;
    /// Returns why this guest cannot be measured with this daemon, or `None` if it can.
    fn objection(&self, candidate: &Candidate) -> Option<String>;
    /// Returns why this guest cannot run these workloads with any of `candidates`, or `None` if it can.
    fn lacks(&self, group: Group, candidates: &[&Candidate]) -> Option<&'static str>;
    /// Runs the workloads once over a daemon that shares a directory.
    fn run(&self, run: &Run<'_>) -> anyhow::Result<Observations>;
    /// Runs the workloads on the bare directory, on the same core.
    fn run_on_host(&self, run: &Run<'_>) -> anyhow::Result<Observations>;
}

/// One part of a suite, run once with one daemon.
pub struct Run<'a> {
    /// The daemon; `None` for the bare directory.
    pub candidate: Option<&'a Candidate>,
    /// What is shared.
    pub shared: &'a Path,
    /// The daemon's cache mode.
    pub cache: CacheMode,
    /// The workloads and their sizes.
    pub params: &'a Params,
    /// Progress; advances by one for each workload.
    pub bar: &'a ProgressBar,
    /// Set when a signal has requested a stop.
    pub is_stopped: &'a Arc<AtomicBool>,
}

/// What to measure.
pub struct Plan {
    /// The first one is compared with each of the others.
    pub candidates: Vec<Candidate>,
    /// The guests.
    pub guests: Vec<Box<dyn Guest>>,
    /// The daemons' cache modes.
    pub caches: Vec<CacheMode>,
    /// Number of rounds over all of it.
    pub rounds: u32,
    /// The parts of the suite, each of which gets a guest of its own.
    pub parts: Vec<Params>,
}

/// Error: a signal ended the measurement early.
#[derive(Debug)]
pub struct Interrupted;

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// The result of a measurement.
#[derive(Debug, Default)]
pub struct Measured {
    /// All samples.
    pub samples: Vec<Sample>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
    /// Number of complete rounds.
    pub whole_rounds: u32,
    /// Daemons that failed in a guest, and why; later rounds skip them there.
    pub failures: Vec<String>,
}

/// A combination of guest, cache mode and part, with the daemons to run it.
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

/// Measures `plan` in a fresh directory below `parent`. A signal ends it early; the samples so far are returned. A
/// daemon that fails in a guest is skipped there from then on. A failure on the bare directory ends the measurement.
///
/// # Errors
/// If nothing was measured.
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
        // The failure is due to the stop.
        Err(_) if is_stopped.load(Ordering::Relaxed) => Ok(measured),
        Err(error) if !measured.samples.is_empty() => {
            measured.failures.push(one_line(&error));
            Ok(measured)
        }
        result => result.map(|()| measured),
    }
}

/// Returns the steps of a round. What cannot be measured is added to `notes` once.
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
                    // Its leftovers would take space from the other daemons.
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

/// Returns an error with its causes on one line, for a table's notes.
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
        Line::Begin { workload } => (workload, None, Some("it started but reported no result".into())),
        Line::End => unreachable!("`observed::complete` took it off"),
    };
    Sample { scenario: scenario.to_owned(), workload, daemon: daemon.to_owned(), repetition, measure, refusal }
}
