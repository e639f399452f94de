//! Processes that outlive the one that serves: `--resilient`.
//!
//! The *anchor* is the process that has isolated itself. It holds the table of descriptors, which all share, and its
//! `/proc/self/fd` is the one through which they open inodes; so it has no capability that they could lack. It starts
//! the *keeper*, which starts the serving process, and another one when that is killed. Descriptors with the locks on
//! them, and the journal, are as the dead process has left them. Neither reads what a guest has written.
//!
//! The keeper gives up after [`DEATHS_MAX`] deaths within [`DEATHS_WITHIN`]: the request that kills the process would
//! do it again.

use std::{
    mem::ManuallyDrop,
    os::fd::OwnedFd,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::{
    process::getpid,
    process::{DumpableBehavior, Pid, Signal, getppid, set_dumpable_behavior, set_parent_process_death_signal},
};
use tracing::{error, warn};
use transom_host::{
    journal::{Journal, JournalFile},
    sysfd::{LeftDescriptors, left::open_descriptors},
};

use super::{fork, keeper};

/// How many deaths are too many, within [`DEATHS_WITHIN`].
const DEATHS_MAX: usize = 3;
/// Longer than it takes to serve again what was in flight.
const DEATHS_WITHIN: Duration = Duration::from_secs(10);

/// For tests: where the first process dies, as [`Journal::dying_at`] takes it. Only in builds with debug assertions.
const DEATH_VARIABLE: &str = "TRANSOMD_TEST_DEATH";

/// What the serving process begins with.
#[derive(Debug)]
pub struct Life {
    /// The journal of this process and of those before.
    pub journal: Journal,
    /// The descriptors of the process that has died, if there was one.
    pub left: Option<LeftDescriptors>,
}

/// Returns in each serving process, one after the other. Must be called before the first thread starts.
///
/// # Errors
///
/// If there is no memory, or no process can be started.
pub fn outlive(proc_self_fd: &OwnedFd, queues: usize) -> anyhow::Result<Life> {
    // The serving process must not close it: the keeper has the same descriptor.
    let file = ManuallyDrop::new(JournalFile::create(queues).context("cannot create the journal")?);
    let anchor = getpid();
    if let Some(keeper) = fork::fork_sharing_descriptors().context("cannot start a process")? {
        keeper::reduce_capabilities_to_none();
        // The others look at its descriptors.
        set_dumpable_behavior(DumpableBehavior::Dumpable).context("cannot let others share descriptors")?;
        std::process::exit(keeper::wait_for(keeper).status());
    }
    die_with(anchor)?;
    let kept = open_descriptors(proc_self_fd).context("cannot list descriptors")?;
    let keeper = getpid();
    let mut deaths: Vec<Instant> = Vec::new();
    loop {
        let Some(process) = fork::fork_sharing_descriptors().context("cannot start a process")? else {
            die_with(keeper)?;
            let left = (!deaths.is_empty()).then(|| LeftDescriptors::find(proc_self_fd, &kept));
            let left = left.transpose().context("cannot list descriptors")?;
            let journal = file.open().context("cannot map the journal")?;
            let journal = if deaths.is_empty() { dying_if_wanted(journal) } else { journal };
            return Ok(Life { journal, left });
        };
        let ended = keeper::wait_for(process);
        if ended.signal.is_none() || ended.is_wanted {
            std::process::exit(ended.status());
        }
        let now = Instant::now();
        deaths.retain(|&death| now.duration_since(death) < DEATHS_WITHIN);
        deaths.push(now);
        if deaths.len() >= DEATHS_MAX {
            error!("the daemon has died {DEATHS_MAX} times within {} s: giving up", DEATHS_WITHIN.as_secs());
            std::process::exit(ended.status());
        }
        warn!("the daemon goes on in another process");
    }
}

/// Makes this process end with its parent.
fn die_with(parent: Pid) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot follow the parent process")?;
    if getppid() != Some(parent) {
        std::process::exit(1);
    }
    Ok(())
}

fn dying_if_wanted(journal: Journal) -> Journal {
    match std::env::var(DEATH_VARIABLE) {
        Ok(when) if cfg!(debug_assertions) => journal.dying_at(&when),
        _ => journal,
    }
}
