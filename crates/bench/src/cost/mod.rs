//! What a daemon executes for each request: instructions, system calls, allocations, copies, wakes, notifications.
//!
//! Times are noisy, counts are not. [`guest`] sends requests to a daemon that [`trace`] runs instruction by
//! instruction, one thread at a time; [`operation`] says what is asked, [`counts`] what is counted. [`table`] shows the
//! result, and [`baseline`] compares it with what a file in the tree says. [`library`] counts the guest library's side.

pub mod baseline;
mod counts;
mod guest;
pub mod library;
mod operation;
pub mod sharing;
pub mod table;
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
mod trace;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
#[path = "trace_elsewhere.rs"]
mod trace;

use std::{fs, path::Path};

use anyhow::Context as _;
use nix::sys::personality::{self, Persona};
use serde::{Deserialize, Serialize};
use transom_frontend::{FrontEnd, Options, fuse::Session};
use transom_vm::CacheMode;

use crate::{
    daemon::{Candidate, Daemon},
    process::{Placement, on_core},
    progress,
    report::{Facts, Version},
    round_trip::linux_flags,
};
pub use counts::Counts;
use guest::Guest;
pub use operation::Operation;
use operation::Targets;
use trace::Tracer;

/// What to count.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The daemons. A transomd that polls and one that does not are two of them.
    pub candidates: Vec<Candidate>,
    /// Requests that arrive together.
    pub depths: Vec<u16>,
    /// What is asked.
    pub operations: Vec<Operation>,
    /// Each operation is counted so often; the medians are told.
    pub rounds: u32,
}

/// A file of results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostReport {
    /// The version of the format.
    pub schema: u32,
    /// The command line that counted.
    pub command: Vec<String>,
    /// Where and when.
    pub facts: Facts,
    /// Who was counted.
    pub daemons: Vec<Version>,
    /// One for each operation, daemon and depth.
    pub rows: Vec<Row>,
}

/// What one operation costs one daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The operation.
    pub operation: String,
    /// The daemon.
    pub daemon: String,
    /// Requests that arrived together.
    pub depth: u16,
    /// For one operation: medians over the rounds.
    pub counts: Counts,
}

/// The version of [`CostReport`].
pub const SCHEMA: u32 = 1;

/// Operations before the first that counts: caches are filled, functions found, memory is touched.
const WARM_UP: u32 = 40;
/// Operations that are traced and do not count: the first one has what interrupted threads begin anew.
const TRACED_WARM_UP: u32 = 1;
const ENTRIES: u32 = 10;
const DATA_LEN: usize = 4 << 20;

/// Counts what `plan` says, in fresh directories below `parent`.
pub fn measure(plan: &Plan, parent: &Path) -> anyhow::Result<Vec<Row>> {
    let steps = plan.candidates.len() * plan.depths.len() * plan.operations.len();
    let bar = progress::bar(steps as u64);
    let mut rows = Vec::new();
    for candidate in &plan.candidates {
        for &depth in &plan.depths {
            let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(parent)?;
            populate(shared.path())?;
            let mut run = Run::start(candidate, shared.path(), depth)?;
            for &operation in &plan.operations {
                bar.set_message(format!("{} {}, {depth} at once", candidate.name, operation.name()));
                let counts = run.count(operation, plan.rounds).with_context(|| {
                    format!("{} {}; the daemon wrote: {}", candidate.name, operation.name(), run.daemon.log())
                })?;
                rows.push(Row { operation: operation.name(), daemon: candidate.name.clone(), depth, counts });
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn populate(dir: &Path) -> anyhow::Result<()> {
    fs::write(dir.join("data"), vec![0x42; DATA_LEN])?;
    fs::create_dir(dir.join("made"))?;
    for parent in ["entries", "fresh"] {
        fs::create_dir(dir.join(parent))?;
        for number in 0..ENTRIES {
            fs::write(dir.join(format!("{parent}/entry{number}")), "")?;
        }
    }
    Ok(())
}

/// A daemon with a guest.
struct Run {
    guest: Guest,
    depth: u16,
    _front_end: FrontEnd,
    // Dropped last: the daemon ends after its front end.
    daemon: Daemon,
    _dir: tempfile::TempDir,
}

/// The daemon and its tracer take turns, and never run at once.
const PLACEMENT: Placement = Placement::SameCore;

impl Run {
    fn start(candidate: &Candidate, shared: &Path, depth: u16) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let placement = PLACEMENT.where_possible();
        let start = || Daemon::start(candidate, shared, CacheMode::Auto, placement, dir.path());
        let daemon = with_fixed_addresses(start)??;
        let open = || -> anyhow::Result<(FrontEnd, Guest)> {
            let options = Options { queue_size: 256, ram_bytes: 64 << 20, ..Options::default() };
            let front_end = FrontEnd::connect(&daemon.socket, options)?;
            let mut session = Session::new(front_end.start_queue(1)?);
            session.init(linux_flags())?;
            let targets = Targets::open(&mut session)?;
            let guest = Guest::new(session.exchange, targets, depth);
            Ok((front_end, guest))
        };
        let (front_end, guest) =
            open().with_context(|| format!("{} as the peer; it wrote: {}", candidate.name, daemon.log()))?;
        Ok(Self { guest, depth, _front_end: front_end, daemon, _dir: dir })
    }

    fn count(&mut self, operation: Operation, rounds: u32) -> anyhow::Result<Counts> {
        let placement = PLACEMENT.where_possible();
        on_core(placement.guest_core(), || {
            self.guest.warm_up(operation, WARM_UP)?;
            let mut tracer = Tracer::attach(self.daemon.process.id())?;
            for _ in 0..TRACED_WARM_UP {
                self.guest.count(operation, &mut tracer)?;
            }
            // Each round has as many requests as are in flight.
            let rounds = rounds.max(1).div_ceil(self.depth.into());
            let all: Vec<Counts> =
                (0..rounds).map(|_| self.guest.count(operation, &mut tracer)).collect::<anyhow::Result<_>>()?;
            Ok(Counts::medians(&all).divided_by(self.depth.into()))
        })?
    }
}

/// Runs `start` so that the processes that it starts have their memory at the same addresses each time.
fn with_fixed_addresses<T>(start: impl FnOnce() -> T) -> anyhow::Result<T> {
    let before = personality::get().context("personality")?;
    personality::set(before | Persona::ADDR_NO_RANDOMIZE).context("personality")?;
    let result = start();
    personality::set(before).context("personality")?;
    Ok(result)
}
