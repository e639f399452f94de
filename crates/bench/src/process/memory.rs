//! The memory of a process and of those below it, as the kernel counts it.

use std::fs;

use serde::{Deserialize, Serialize};

/// Memory, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident now.
    pub rss_kib: u64,
    /// The most that was ever resident.
    pub rss_peak_kib: u64,
    /// Resident now, what is shared with other processes in proportion.
    pub pss_kib: u64,
    /// Resident now and its own: neither a file's pages nor shared memory.
    pub anonymous_kib: u64,
    /// Descriptors open.
    pub descriptors: u64,
}

impl Memory {
    /// The sum over `pid` and the processes below it.
    pub fn of(pid: u32) -> Self {
        super::family(pid).into_iter().map(Self::of_one).fold(Self::default(), |sum, one| Self {
            rss_kib: sum.rss_kib + one.rss_kib,
            rss_peak_kib: sum.rss_peak_kib + one.rss_peak_kib,
            pss_kib: sum.pss_kib + one.pss_kib,
            anonymous_kib: sum.anonymous_kib + one.anonymous_kib,
            descriptors: sum.descriptors + one.descriptors,
        })
    }

    fn of_one(pid: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        Self {
            rss_kib: field(&status, "VmRSS"),
            rss_peak_kib: field(&status, "VmHWM"),
            pss_kib: field(&rollup, "Pss"),
            anonymous_kib: field(&rollup, "Anonymous"),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64),
        }
    }
}

/// The number behind `name:` in a file of `/proc`; 0 where it is missing.
pub(crate) fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
