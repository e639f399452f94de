//! Compares settings of `--poll-us` by what they gain and what they cost: one idle guest, one busy guest, eight busy
//! guests on two cores, and one busy guest beside a host that computes.
//!
//! Guests are drivers that sleep until the daemon notifies them, as a virtual machine does that has nothing else to do.
//! Each sample has daemons of its own, so that none begins with what the one before has learnt. Rounds alternate
//! between the settings. [`table`] is the result.

mod table;

use std::{
    hint,
    path::Path,
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use transom_vm::CacheMode;

use crate::{
    daemon::Candidate,
    latency,
    process::{Placement, cpu_ns, on_cores, wakes},
    progress,
    report::Facts,
    round_trip::{Operation, Run, driver::Waiting, populate},
};

pub use table::markdown;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The daemon, which knows `--poll-us`.
    pub daemon: Candidate,
    /// Values of `--poll-us`; `None` is the daemon's default.
    pub settings: Vec<Option<u32>>,
    /// The scenes.
    pub scenes: Vec<Scene>,
    /// Number of rounds over all settings.
    pub rounds: u32,
    /// How long each sample takes.
    pub time: Duration,
}

/// What guests and host do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Scene {
    /// One guest that has been busy, and does nothing.
    Idle,
    /// One guest that reads 4 KiB at a time.
    OneBusy,
    /// Eight such guests on two cores.
    EightBusy,
    /// One such guest, while a thread computes on each of two cores.
    HostComputes,
}

/// A file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PollingReport {
    /// The command line of the measurement.
    pub command: Vec<String>,
    /// Where and when.
    pub facts: Facts,
    /// One for each scene, setting and round.
    pub samples: Vec<PollingSample>,
}

/// One sample.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PollingSample {
    /// What guests and host did.
    pub scene: Scene,
    /// The value of `--poll-us`; `None` is the daemon's default.
    pub poll_us: Option<u32>,
    /// The round.
    pub repetition: u32,
    /// Number of shares, each with a daemon of its own.
    pub shares: u32,
    /// Cores that guests, daemons and computing threads had.
    pub cores: u32,
    /// How long it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requests of all guests.
    pub requests: u64,
    /// Median time from a request to its reply; 0 without requests.
    pub latency_p50_ns: u64,
    /// 99 % of the requests took no longer.
    pub latency_p99_ns: u64,
    /// Processor time of all daemons.
    pub daemon_cpu_ns: u64,
    /// How often threads of the daemons waited, by `/proc`.
    pub daemon_wakes: u64,
    /// Rounds that the computing threads have done: what polling takes from the host.
    pub computed: u64,
}

/// What guests ask for.
const OPERATION: Operation = Operation::Read4k;
/// Requests between two looks at the clock.
const CHUNK: u32 = 50;
/// Requests before the measurement, in which the daemon learns how long to poll.
const WARM_UP: u32 = 500;
/// Cores for everything, also where there are more.
const CORES: usize = 2;

impl Scene {
    fn guests(self) -> usize {
        if self == Self::EightBusy { 8 } else { 1 }
    }

    /// Returns the scene's title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Idle => "one idle guest",
            Self::OneBusy => "one busy guest",
            Self::EightBusy => "eight busy guests",
            Self::HostComputes => "one busy guest, and a host that computes",
        }
    }
}

/// Measures `plan` in a fresh directory below `parent`.
pub fn measure(plan: &Plan, parent: &Path) -> anyhow::Result<Vec<PollingSample>> {
    let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
    populate(shared.path())?;
    let steps = plan.scenes.len() * plan.settings.len() * plan.rounds as usize;
    let bar = progress::bar(steps as u64);
    let mut samples = Vec::new();
    for repetition in 0..plan.rounds {
        for &scene in &plan.scenes {
            for &poll_us in &plan.settings {
                bar.set_message(format!("{}: {}", scene.title(), table::setting(poll_us)));
                let sample = on_cores(CORES, |cores| sample(plan, shared.path(), (scene, poll_us), cores))??;
                samples.push(PollingSample { repetition, ..sample });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

fn sample(
    plan: &Plan,
    shared: &Path,
    (scene, poll_us): (Scene, Option<u32>),
    cores: usize,
) -> anyhow::Result<PollingSample> {
    let mut daemon = plan.daemon.clone();
    daemon.args.extend(poll_us.map(|us| format!("--poll-us={us}")));
    let start = |_| Run::start_waiting(&daemon, shared, CacheMode::Auto, (Placement::Anywhere, Waiting::Sleep), 1);
    let mut runs = (0..scene.guests()).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let mut latencies = latency::histogram();
    runs.iter_mut().try_for_each(|run| run.requests(OPERATION, WARM_UP, &mut latencies))?;
    latencies.reset();

    let pids: Vec<_> = runs.iter().map(Run::pid).collect();
    let used = || (pids.iter().map(|&pid| cpu_ns(pid)).sum::<u64>(), pids.iter().map(|&pid| wakes(pid)).sum::<u64>());
    let host = Host::start(if scene == Scene::HostComputes { cores } else { 0 });
    let (before, begun) = (used(), Instant::now());
    let requests = match scene {
        Scene::Idle => {
            thread::sleep(plan.time);
            0
        }
        _ => busy(&mut runs, plan.time, &mut latencies)?,
    };
    let (elapsed, after) = (begun.elapsed(), used());
    Ok(PollingSample {
        scene,
        poll_us,
        repetition: 0,
        shares: runs.len() as u32,
        cores: cores as u32,
        elapsed_ns: elapsed.as_nanos() as u64,
        requests,
        latency_p50_ns: latencies.value_at_quantile(0.5),
        latency_p99_ns: latencies.value_at_quantile(0.99),
        daemon_cpu_ns: after.0 - before.0,
        daemon_wakes: after.1.saturating_sub(before.1),
        computed: host.end(),
    })
}

/// Has each guest read for that time, on a thread of its own. Returns the number of requests.
fn busy(runs: &mut [Run], time: Duration, latencies: &mut Histogram<u64>) -> anyhow::Result<u64> {
    let together = &Barrier::new(runs.len());
    let one = |run: &mut Run| -> anyhow::Result<(u64, Histogram<u64>)> {
        let (mut count, mut latencies) = (0, latency::histogram());
        together.wait();
        let begun = Instant::now();
        while begun.elapsed() < time {
            run.requests(OPERATION, CHUNK, &mut latencies)?;
            count += u64::from(CHUNK);
        }
        Ok((count, latencies))
    };
    let outcomes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = runs.iter_mut().map(|run| scope.spawn(|| one(run))).collect();
        threads.into_iter().map(|thread| thread.join().ok().context("a guest's thread panicked")?).collect()
    });
    let mut count = 0;
    for outcome in outcomes {
        let (requests, of_guest) = outcome?;
        count += requests;
        latencies.add(of_guest)?;
    }
    Ok(count)
}

/// Threads of the host that compute.
struct Host {
    is_over: std::sync::Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<u64>>,
}

impl Host {
    fn start(count: usize) -> Self {
        let is_over = std::sync::Arc::new(AtomicBool::new(false));
        let compute = |_| {
            let is_over = std::sync::Arc::clone(&is_over);
            thread::spawn(move || {
                let mut rounds = 0;
                while !is_over.load(Relaxed) {
                    // About a microsecond.
                    (0..1000).for_each(|number| _ = hint::black_box(number));
                    rounds += 1;
                }
                rounds
            })
        };
        let threads = (0..count).map(compute).collect();
        Self { is_over, threads }
    }

    /// Ends the threads and returns how many rounds they have done.
    fn end(mut self) -> u64 {
        self.is_over.store(true, Relaxed);
        std::mem::take(&mut self.threads).into_iter().filter_map(|thread| thread.join().ok()).sum()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
    }
}
