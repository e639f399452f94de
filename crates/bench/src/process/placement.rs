//! Which core runs whom: the guest, or the driver that stands for it, on core 0, and the daemon there or beside it.

use std::io;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where the daemon runs, as seen from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On the guest's core: no core has to be woken, each waits for the other.
    SameCore,
    /// On another core.
    OtherCore,
}

impl Placement {
    /// The core of the guest or the driver. Not the first one, which has interrupts to serve.
    pub fn guest_core(self) -> usize {
        1
    }

    /// The core of the daemon.
    pub fn daemon_core(self) -> usize {
        match self {
            Self::SameCore => 1,
            Self::OtherCore => 0,
        }
    }

    /// For titles.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameCore => "same core",
            Self::OtherCore => "other core",
        }
    }
}

/// Runs `work` with this thread on `core`; threads and processes that it starts stay there.
pub fn on_core<T>(core: usize, work: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only(core))?;
    let result = work();
    sched_setaffinity(None, &before)?;
    Ok(result)
}

/// Moves `pid`, the processes below it and all their threads to `core`; what they start stays there.
pub fn pin(pid: u32, core: usize) -> io::Result<()> {
    for member in super::family(pid) {
        for thread in super::threads(member) {
            match sched_setaffinity(Pid::from_raw(thread as i32), &only(core)) {
                // The thread ended meanwhile.
                Err(rustix::io::Errno::SRCH) => (),
                result => result?,
            }
        }
    }
    Ok(())
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
