//! The workloads in Linux guests, one boot for each daemon and round, the bare directory of the host beside them.
//!
//! [`observed`] stands between guest and host and reads the daemon's processor time around each workload.

mod observed;

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use indicatif::ProgressBar;
use transom_vm::{CacheMode, Dax, DaxMode, GuestSpec, Kernel, Root, Share, Vmm};

use crate::{
    daemon::Candidate,
    process::{Placement, on_core},
    progress,
    report::{HOST, Measure, Sample},
    workload::{Params, line::Line},
};
use observed::{Observations, Observed};

/// What to measure.
pub struct Plan {
    /// The first one is compared with each other one.
    pub candidates: Vec<Candidate>,
    /// Where daemon and guest run.
    pub placements: Vec<Placement>,
    /// The daemons' cache modes.
    pub caches: Vec<CacheMode>,
    /// Rounds over all daemons.
    pub rounds: u32,
    /// What the guest does.
    pub params: Params,
    /// What is booted.
    pub kernel: Kernel,
    /// Memory of the guest, MiB.
    pub memory_mib: u32,
}

/// Where the guest mounts the share.
const MOUNT_POINT: &str = "/mnt/share";
/// A guest that hangs is stopped after this time; a whole run takes a minute at most, also under emulation.
const TIMEOUT: Duration = Duration::from_secs(900);

/// Measures `plan` with `vmm`, sharing fresh directories below `parent`.
pub fn measure(plan: &Plan, vmm: &dyn Vmm, parent: &Path) -> anyhow::Result<Vec<Sample>> {
    let scenarios = plan.placements.len() * plan.caches.len();
    let boots = scenarios * plan.rounds as usize * (plan.candidates.len() + 1);
    let bar = progress::bar((boots * plan.params.workload_count()) as u64);
    let mut samples = Vec::new();
    for &placement in &plan.placements {
        for &cache in &plan.caches {
            let scenario = format!("{}, {}, cache={}", vmm.name(), placement.as_str(), cache.as_str());
            for repetition in 0..plan.rounds {
                let mut take = |daemon: &str, observations: Observations| {
                    samples.extend(
                        observations
                            .into_iter()
                            .map(|(line, cpu_ns)| sample(&scenario, daemon, repetition, line, cpu_ns)),
                    );
                };
                for candidate in &plan.candidates {
                    bar.set_message(format!("{scenario}: {}", candidate.name));
                    take(&candidate.name, in_guest(plan, vmm, candidate, cache, placement, parent, &bar)?);
                }
                bar.set_message(HOST);
                take(HOST, on_host(plan, placement, parent, &bar)?);
            }
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

fn in_guest(
    plan: &Plan,
    vmm: &dyn Vmm,
    candidate: &Candidate,
    cache: CacheMode,
    placement: Placement,
    parent: &Path,
    bar: &ProgressBar,
) -> anyhow::Result<Observations> {
    let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    let params = Params { drop_caches: true, ..plan.params.clone() };
    let mut command: Vec<std::ffi::OsString> = ["/init", "workload", MOUNT_POINT].map(Into::into).to_vec();
    command.extend(params.to_args().into_iter().map(Into::into));
    let share = Share {
        host: shared.path().to_owned(),
        guest: MOUNT_POINT.into(),
        is_read_only: false,
        cache: Some(cache),
        dax: candidate.window_len.map(|window_len| Dax { window_len, mode: DaxMode::Always }),
        daemon_args: candidate.args.iter().map(Into::into).collect(),
    };
    let spec = GuestSpec {
        kernel: plan.kernel.clone(),
        agent: env::current_exe()?,
        daemon: candidate.program.clone(),
        busybox: None,
        root: Root::Minimal,
        shares: vec![share],
        command,
        env: Vec::new(),
        memory_mib: plan.memory_mib,
        cpus: 1,
        stdio: transom_vm::Stdio::default(),
        timeout: Some(TIMEOUT),
        console: None,
        is_foreground: false,
    };
    let observed = Observed::new(vmm, placement, plan.params.settle_ms, bar);
    // The daemon starts on its core; `observed` moves on to the guest's for the machine.
    let outcome = on_core(placement.daemon_core(), || transom_vm::run(&spec, &observed))?
        .with_context(|| format!("a guest with {}", candidate.name))?;
    ensure!(
        outcome.exit_code == 0,
        "the workloads over {} ended with {}: {}",
        candidate.name,
        outcome.exit_code,
        String::from_utf8_lossy(&outcome.stderr)
    );
    complete(observed.into_observations(), &candidate.name)
}

fn on_host(plan: &Plan, placement: Placement, parent: &Path, bar: &ProgressBar) -> anyhow::Result<Observations> {
    let dir = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    // Emptying the host's caches would need root and disturb everybody; on tmpfs it would change nothing.
    let params = Params { drop_caches: false, ..plan.params.clone() };
    let mut command = Command::new(env::current_exe()?);
    command.arg("workload").arg(dir.path()).args(params.to_args());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = on_core(placement.guest_core(), || command.spawn())??;
    let output = child.stdout.take().context("standard output was piped")?;
    let mut observations = Observations::new();
    for line in BufReader::new(output).lines() {
        let line: Line = serde_json::from_str(&line?)?;
        if !matches!(line, Line::Begin { .. }) {
            observations.push((line, None));
            bar.inc(1);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "the workloads on the host: {status}");
    complete(observations, HOST)
}

/// Takes off the line that ends a run, without which it is not complete.
fn complete(mut observations: Observations, whose: &str) -> anyhow::Result<Observations> {
    match observations.pop() {
        Some((Line::End, _)) => Ok(observations),
        last => bail!("the workloads of {whose} stopped after {last:?}"),
    }
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
                daemon_cpu_ns_per_op: cpu_ns.map(|cpu_ns| cpu_ns as f64 / ops as f64),
            };
            (timing.workload, Some(measure), None)
        }
        Line::Refused { workload, reason } => (workload, None, Some(reason)),
        Line::Begin { workload } => (workload, None, Some("it began and said no more".into())),
        Line::End => unreachable!("`complete` took it off"),
    };
    Sample { scenario: scenario.to_owned(), workload, daemon: daemon.to_owned(), repetition, measure, refusal }
}
