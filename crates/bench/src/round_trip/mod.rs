//! Measures the daemon alone: requests come from a driver without a guest, so that nothing hides the daemon's cost.
//!
//! All daemons run at once, and the bursts alternate between them, some tens of milliseconds apart. [`driver`] keeps a
//! ring filled with the requests of [`script`].

pub(crate) mod driver;
pub(crate) mod script;

use std::{collections::HashMap, fs, path::Path};

use anyhow::Context;
use hdrhistogram::Histogram;
use transom_frontend::{FrontEnd, Options, fuse::Session};
use transom_vm::CacheMode;
use transom_wire::ops::init::InitFlags;

use crate::{
    daemon::{Candidate, Daemon},
    latency,
    process::{Placement, cpu_ns, on_core},
    progress,
    report::{Measure, Sample},
    workload::laps::counts,
};
use driver::{Driver, Waiting};
pub use script::Operation;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The first one is compared with each of the others.
    pub candidates: Vec<Candidate>,
    /// Where daemon and driver run.
    pub placements: Vec<Placement>,
    /// Numbers of requests in flight at once.
    pub depths: Vec<u16>,
    /// The operations to measure.
    pub operations: Vec<Operation>,
    /// Number of rounds over all daemons.
    pub rounds: u32,
    /// Factor for the bytes or requests of a burst; 1 for published results.
    pub scale: f64,
    /// The daemons' cache mode.
    pub cache: CacheMode,
}

/// Entries of the directory, in addition to those that an operation creates.
const ENTRIES: u32 = 32;
/// Size of the file that is read and written: larger than a core's caches.
const DATA_BYTES: u64 = 64 << 20;

/// Measures `plan` in fresh directories below `parent`.
pub fn measure(plan: &Plan, parent: &Path) -> anyhow::Result<Vec<Sample>> {
    let steps = plan.placements.len() * plan.depths.len() * plan.operations.len() * plan.rounds as usize;
    let bar = progress::bar((steps * plan.candidates.len()) as u64);
    let mut samples = Vec::new();
    for &placement in &plan.placements {
        for &depth in &plan.depths {
            let scenario = format!("no guest, {}, {depth} in flight", placement.as_str());
            let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
            populate(shared.path())?;
            let mut runs = Vec::new();
            for candidate in &plan.candidates {
                runs.push(Run::start(candidate, shared.path(), plan.cache, placement, depth)?);
            }
            for repetition in 0..plan.rounds {
                for &operation in &plan.operations {
                    for run in &mut runs {
                        bar.set_message(format!("{scenario}: {} {}", run.name, operation.name()));
                        samples.push(run.burst(operation, plan.scale, &scenario, repetition)?);
                        bar.inc(1);
                    }
                }
            }
        }
    }
    bar.finish_and_clear();
    Ok(samples)
}

/// Makes the files that requests are about.
pub(crate) fn populate(dir: &Path) -> anyhow::Result<()> {
    let block = vec![0x42; 1 << 20];
    let data = fs::File::create(dir.join("data"))?;
    for at in (0..DATA_BYTES).step_by(block.len()) {
        std::os::unix::fs::FileExt::write_all_at(&data, &block, at)?;
    }
    fs::create_dir(dir.join("made"))?;
    fs::create_dir(dir.join("entries"))?;
    for number in 0..ENTRIES {
        fs::write(dir.join(format!("entries/entry{number}")), "")?;
    }
    Ok(())
}

/// A daemon and the driver of its ring.
pub(crate) struct Run {
    name: String,
    driver: Driver,
    targets: script::Targets,
    placement: Placement,
    depth: u16,
    /// Scripts of earlier bursts, which may have ended between the creation of a file and its removal.
    scripts: HashMap<Operation, Vec<script::Script>>,
    // Dropped last, because the daemon ends after its front end.
    daemon: Daemon,
    _dir: tempfile::TempDir,
}

impl Run {
    fn start(
        candidate: &Candidate,
        shared: &Path,
        cache: CacheMode,
        placement: Placement,
        depth: u16,
    ) -> anyhow::Result<Self> {
        // A driver that polls on the daemon's core would keep the daemon from running.
        let waiting = match placement {
            Placement::SameCore => Waiting::Sleep,
            Placement::OtherCore | Placement::Anywhere => Waiting::Poll,
        };
        Self::start_waiting(candidate, shared, cache, (placement, waiting), depth)
    }

    /// As `start`, with a driver that waits for replies in the given way.
    pub(crate) fn start_waiting(
        candidate: &Candidate,
        shared: &Path,
        cache: CacheMode,
        (placement, waiting): (Placement, Waiting),
        depth: u16,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let daemon = Daemon::start(candidate, shared, cache, placement, dir.path())?;
        let open = || -> anyhow::Result<(Driver, script::Targets)> {
            let options = Options { queue_size: 256, ram_bytes: 256 << 20, ..Options::default() };
            let front_end = FrontEnd::connect(&daemon.socket, options)?;
            let queue = front_end.start_queue(1)?;
            let mut session = Session::new(queue);
            session.init(linux_flags())?;
            let targets = script::Targets::open(&mut session, &candidate.name, DATA_BYTES)?;
            Ok((Driver::new(front_end, session.exchange, waiting), targets))
        };
        let (driver, targets) =
            open().with_context(|| format!("{} as the peer; it wrote: {}", candidate.name, daemon.log()))?;
        Ok(Self {
            name: candidate.name.clone(),
            driver,
            targets,
            placement,
            depth,
            scripts: HashMap::new(),
            daemon,
            _dir: dir,
        })
    }

    /// Sends `count` requests on the calling thread, and adds their times to `latencies`.
    pub(crate) fn requests(
        &mut self,
        operation: Operation,
        count: u32,
        latencies: &mut Histogram<u64>,
    ) -> anyhow::Result<()> {
        let first = || (0..self.depth).map(|slot| self.targets.script(operation, slot)).collect();
        let scripts = self.scripts.entry(operation).or_insert_with(first);
        let done = self.driver.run(scripts, operation.shape(), count, Some(latencies));
        done.map(drop).with_context(|| format!("{}; the daemon wrote: {}", self.name, self.daemon.log()))
    }

    /// Returns the daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.process.id()
    }

    fn burst(&mut self, operation: Operation, scale: f64, scenario: &str, repetition: u32) -> anyhow::Result<Sample> {
        let count = ((f64::from(operation.burst_len()) * scale) as u32).max(u32::from(self.depth));
        let mut latencies = latency::histogram();
        let core = self.placement.guest_core();
        let first = || (0..self.depth).map(|slot| self.targets.script(operation, slot)).collect();
        let scripts = self.scripts.entry(operation).or_insert_with(first);
        let pid = self.daemon.process.id();
        let result = on_core(core, || {
            self.driver.run(scripts, operation.shape(), count / 10 + 1, None)?;
            let cpu_before_ns = cpu_ns(pid);
            let elapsed = self.driver.run(scripts, operation.shape(), count, Some(&mut latencies))?;
            anyhow::Ok((elapsed, cpu_ns(pid) - cpu_before_ns))
        })?;
        let (elapsed, daemon_cpu_ns) = result
            .with_context(|| format!("{} {}; the daemon wrote: {}", self.name, operation.name(), self.daemon.log()))?;
        Ok(Sample {
            scenario: scenario.to_owned(),
            workload: operation.name(),
            daemon: self.name.clone(),
            repetition,
            measure: Some(Measure {
                ops: u64::from(count),
                bytes_per_op: operation.shape().data_bytes() as u64,
                ops_per_s: f64::from(count) / elapsed.as_secs_f64(),
                latency_p50_ns: latencies.value_at_quantile(0.5) as f64,
                latency_p99_ns: latencies.value_at_quantile(0.99) as f64,
                latency_counts: counts(&latencies, 1.0),
                daemon_cpu_ns_per_op: Some(daemon_cpu_ns as f64 / f64::from(count)),
            }),
            refusal: None,
        })
    }
}

/// Returns the features that the Linux driver offers with virtio-fs.
pub(crate) fn linux_flags() -> InitFlags {
    InitFlags::ASYNC_READ
        | InitFlags::POSIX_LOCKS
        | InitFlags::ATOMIC_O_TRUNC
        | InitFlags::EXPORT_SUPPORT
        | InitFlags::BIG_WRITES
        | InitFlags::DONT_MASK
        | InitFlags::FLOCK_LOCKS
        | InitFlags::HAS_IOCTL_DIR
        | InitFlags::AUTO_INVAL_DATA
        | InitFlags::DO_READDIRPLUS
        | InitFlags::READDIRPLUS_AUTO
        | InitFlags::ASYNC_DIO
        | InitFlags::WRITEBACK_CACHE
        | InitFlags::NO_OPEN_SUPPORT
        | InitFlags::PARALLEL_DIROPS
        | InitFlags::HANDLE_KILLPRIV
        | InitFlags::POSIX_ACL
        | InitFlags::ABORT_ERROR
        | InitFlags::MAX_PAGES
        | InitFlags::CACHE_SYMLINKS
        | InitFlags::NO_OPENDIR_SUPPORT
        | InitFlags::EXPLICIT_INVAL_DATA
        | InitFlags::SUBMOUNTS
        | InitFlags::HANDLE_KILLPRIV_V2
        | InitFlags::SETXATTR_EXT
        | InitFlags::INIT_EXT
        | InitFlags::SECURITY_CTX
        | InitFlags::CREATE_SUPP_GROUP
}
