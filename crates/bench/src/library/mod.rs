//! Measures the guest library over each daemon, with many threads in one session, and the same on the bare directory.
//!
//! All daemons run at once, and the bursts alternate between them, some tens of milliseconds apart. [`operation`] is
//! what a thread does, either through the library or by system calls.

mod operation;

use std::{
    fs,
    path::Path,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use transom_user::share::Share;
use transom_vm::CacheMode;

use crate::{
    daemon::{Candidate, Daemon},
    guests::user::settings,
    latency,
    process::{Placement, cpu_ns, on_core},
    progress,
    report::{HOST, Measure, Sample},
    workload::laps::counts,
};
use operation::OnHost;
pub use operation::Operation;
pub(crate) use operation::{Subject, ThroughLibrary};

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first one is compared with each of the others.
    pub candidates: Vec<Candidate>,
    /// Where the daemon and the threads run.
    pub placements: Vec<Placement>,
    /// Numbers of threads, each with one request in flight.
    pub threads: Vec<u16>,
    /// The operations to measure.
    pub operations: Vec<Operation>,
    /// Number of rounds over all daemons.
    pub rounds: u32,
    /// Factor for the number of operations in a burst; 1 for published results.
    pub scale: f64,
    /// The daemons' cache mode.
    pub cache: CacheMode,
}

/// Size of the file that is read and written: larger than a core's caches.
const DATA_BYTES: u64 = 64 << 20;
/// Memory shared with a daemon: a buffer of 1 MiB for each thread, and the same again.
const ARENA_BYTES: usize = 128 << 20;

/// Measures `plan` in fresh directories below `parent`.
pub fn measure(plan: &Plan, parent: &Path) -> anyhow::Result<Vec<Sample>> {
    let steps = plan.placements.len() * plan.threads.len() * plan.operations.len() * plan.rounds as usize;
    let bar = progress::bar((steps * (plan.candidates.len() + 1)) as u64);
    let mut samples = Vec::new();
    for &placement in &plan.placements {
        let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
        populate(shared.path())?;
        let mut runs = vec![Run::on_host(shared.path())?];
        for candidate in &plan.candidates {
            runs.push(Run::start(candidate, shared.path(), plan.cache, placement)?);
        }
        for &threads in &plan.threads {
            let scenario = format!("guest library, {}, threads: {threads}", placement.as_str());
            for repetition in 0..plan.rounds {
                for &operation in &plan.operations {
                    for run in &runs {
                        bar.set_message(format!("{scenario}: {} {}", run.name, operation.name()));
                        let measure = run.burst(operation, threads, plan.scale, placement).with_context(|| {
                            format!("{} {}; the daemon wrote: {}", run.name, operation.name(), run.log())
                        })?;
                        samples.push(Sample {
                            scenario: scenario.clone(),
                            workload: operation.name(),
                            daemon: run.name.clone(),
                            repetition,
                            measure: Some(measure),
                            refusal: None,
                        });
                        bar.inc(1);
                    }
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

/// Makes what the operations need.
pub(crate) fn populate(dir: &Path) -> anyhow::Result<()> {
    fs::write(dir.join(operation::DATA), vec![0x42; DATA_BYTES as usize])?;
    let warm = dir.join(operation::WARM);
    fs::create_dir_all(warm.parent().context("the path has directories")?)?;
    fs::write(warm, vec![0x43; operation::WARM_BYTES])?;
    Ok(())
}

/// A subject that performs the operations.
struct Run {
    name: String,
    subject: Box<dyn Subject>,
    // Dropped last: the daemon ends after its front end.
    daemon: Option<(Daemon, tempfile::TempDir)>,
}

impl Run {
    fn on_host(shared: &Path) -> anyhow::Result<Self> {
        Ok(Self { name: HOST.to_owned(), subject: Box::new(OnHost::new(shared)?), daemon: None })
    }

    fn start(candidate: &Candidate, shared: &Path, cache: CacheMode, placement: Placement) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let daemon = Daemon::start(candidate, shared, cache, placement, dir.path())?;
        let settings = settings(placement);
        let mount = Share::builder().socket(&daemon.socket).arena_len_bytes(ARENA_BYTES).settings(settings);
        let subject = mount
            .connect()
            .map_err(anyhow::Error::from)
            .and_then(ThroughLibrary::new)
            .with_context(|| format!("{} as the peer; it wrote: {}", candidate.name, daemon.log()))?;
        Ok(Self { name: candidate.name.clone(), subject: Box::new(subject), daemon: Some((daemon, dir)) })
    }

    fn log(&self) -> String {
        self.daemon.as_ref().map(|(daemon, _)| daemon.log()).unwrap_or_default()
    }

    fn burst(&self, operation: Operation, threads: u16, scale: f64, placement: Placement) -> anyhow::Result<Measure> {
        let each = ((f64::from(operation.burst_len()) * scale) as u32).div_ceil(threads.into()).max(1);
        let cpu_used_ns = || self.daemon.as_ref().map(|(daemon, _)| cpu_ns(daemon.process.id()));
        on_core(placement.guest_core(), || {
            self.all_threads(operation, threads, each / 10 + 1)?;
            let before_ns = cpu_used_ns();
            let (elapsed, latencies) = self.all_threads(operation, threads, each)?;
            let ops = u64::from(each) * u64::from(threads);
            let cpu_ns = before_ns.zip(cpu_used_ns()).map(|(before_ns, after_ns)| after_ns - before_ns);
            Ok(Measure {
                ops,
                bytes_per_op: operation.bytes() as u64,
                ops_per_s: ops as f64 / elapsed.as_secs_f64(),
                latency_p50_ns: latencies.value_at_quantile(0.5) as f64,
                latency_p99_ns: latencies.value_at_quantile(0.99) as f64,
                latency_counts: counts(&latencies, 1.0),
                daemon_cpu_ns_per_op: cpu_ns.map(|cpu_ns| cpu_ns as f64 / ops as f64),
            })
        })?
    }

    /// Runs `count` operations on each of `threads` threads. Returns the time from the first start to the last end.
    fn all_threads(
        &self,
        operation: Operation,
        threads: u16,
        count: u32,
    ) -> anyhow::Result<(Duration, Histogram<u64>)> {
        let barrier = Barrier::new(usize::from(threads));
        let work = |number| {
            let mut worker = self.subject.worker(operation, number);
            let mut latencies = latency::histogram();
            // Every thread reaches the barrier, even after an error: the others would wait forever.
            barrier.wait();
            let worker = worker.as_mut().map_err(|error| anyhow!("{error:#}"))?;
            let begun = Instant::now();
            for _ in 0..count {
                let begun = Instant::now();
                worker.once()?;
                latencies.saturating_record(begun.elapsed().as_nanos() as u64);
            }
            anyhow::Ok((begun, Instant::now(), latencies))
        };
        thread::scope(|scope| {
            let work = &work;
            let workers: Vec<_> = (0..threads).map(|number| scope.spawn(move || work(number))).collect();
            let mut all = latency::histogram();
            let mut span: Option<(Instant, Instant)> = None;
            for worker in workers {
                let (begun, ended, latencies) = worker.join().map_err(|_| anyhow!("a thread panicked"))??;
                all.add(latencies)?;
                span = Some(span.map_or((begun, ended), |(first, last)| (first.min(begun), last.max(ended))));
            }
            let (first, last) = span.context("no threads")?;
            Ok((last - first, all))
        })
    }
}
