//! The memory of a process and its descendants, as the kernel accounts it.

use std::fs;

use serde::{Deserialize, Serialize};

/// Memory, in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident now.
    pub rss_kib: u64,
    /// Highest resident size.
    pub rss_peak_kib: u64,
    /// Resident now; shared memory counts in proportion to its users.
    pub pss_kib: u64,
    /// Resident now and private: neither file pages nor shared memory.
    pub anonymous_kib: u64,
    /// Number of open descriptors.
    pub descriptors: u64,
}

impl Memory {
    /// Returns the sum over `pid` and its descendants.
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

/// Returns the number after `name:` in a file of `/proc`, or 0 if it is missing.
pub(crate) fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}
