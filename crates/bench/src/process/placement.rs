//! Which core runs whom: the guest, or the driver that stands for it, on core 0, and the daemon there or beside it.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where the daemon runs, as seen from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On the guest's core: no core has to be woken, but each side waits for the other.
    SameCore,
    /// On another core.
    OtherCore,
    /// Where the scheduler puts it.
    Anywhere,
}

impl Placement {
    /// This one where the machine has the cores for it, else [`Self::Anywhere`].
    #[must_use]
    pub fn where_possible(self) -> Self {
        match std::thread::available_parallelism().map_or(1, usize::from) {
            1 => Self::Anywhere,
            _ => self,
        }
    }

    /// The core of the guest or the driver, if it has one. Not the first one, which has interrupts to serve.
    pub fn guest_core(self) -> Option<usize> {
        match self {
            Self::SameCore | Self::OtherCore => Some(1),
            Self::Anywhere => None,
        }
    }

    /// The core of the daemon, if it has one.
    pub fn daemon_core(self) -> Option<usize> {
        match self {
            Self::SameCore => Some(1),
            Self::OtherCore => Some(0),
            Self::Anywhere => None,
        }
    }

    /// For titles.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameCore => "same core",
            Self::OtherCore => "other core",
            Self::Anywhere => "any core",
        }
    }
}

/// Runs `work` with this thread on `core`, or where it is; threads and processes that it starts stay there.
pub fn on_core<T>(core: Option<usize>, work: impl FnOnce() -> T) -> io::Result<T> {
    let Some(core) = core else { return Ok(work()) };
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only(core))?;
    let result = work();
    sched_setaffinity(None, &before)?;
    Ok(result)
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
