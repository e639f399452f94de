//! Placement on cores: the guest (or the driver in its place) on one core, the daemon on the same core or another.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

/// Where the daemon runs, as seen from the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On the guest's core: no other core has to wake up, but each side waits for the other.
    SameCore,
    /// On another core.
    OtherCore,
    /// Wherever the scheduler puts it.
    Anywhere,
}

impl Placement {
    /// Returns this placement if the machine has enough cores, else [`Self::Anywhere`].
    #[must_use]
    pub fn where_possible(self) -> Self {
        match std::thread::available_parallelism().map_or(1, usize::from) {
            1 => Self::Anywhere,
            _ => self,
        }
    }

    /// Returns the core of the guest or the driver, if it is fixed. Avoids the first core, which handles interrupts.
    pub fn guest_core(self) -> Option<usize> {
        match self {
            Self::SameCore | Self::OtherCore => Some(1),
            Self::Anywhere => None,
        }
    }

    /// Returns the core of the daemon, if it is fixed.
    pub fn daemon_core(self) -> Option<usize> {
        match self {
            Self::SameCore => Some(1),
            Self::OtherCore => Some(0),
            Self::Anywhere => None,
        }
    }

    /// Returns the placement's name for titles.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SameCore => "same core",
            Self::OtherCore => "other core",
            Self::Anywhere => "any core",
        }
    }
}

/// Runs `work` with this thread on `core`, if given. Threads and processes that it starts stay there.
pub fn on_core<T>(core: Option<usize>, work: impl FnOnce() -> T) -> io::Result<T> {
    let Some(core) = core else { return Ok(work()) };
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &only(core))?;
    let result = work();
    sched_setaffinity(None, &before)?;
    Ok(result)
}

/// Runs `work` with this thread on no more than `count` cores. Threads and processes that it starts stay there. Returns
/// the number of cores, too.
pub fn on_cores<T>(count: usize, work: impl FnOnce(usize) -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    let mut few = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|&core| before.is_set(core)).take(count).for_each(|core| few.set(core));
    sched_setaffinity(None, &few)?;
    let result = work(few.count() as usize);
    sched_setaffinity(None, &before)?;
    Ok(result)
}

fn only(core: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core);
    set
}
