//! The cost of a process and its descendants: processor time and memory.

mod cpu_clock;
mod memory;
mod placement;

use std::fs;

pub use memory::Memory;
pub(crate) use memory::field;
pub use placement::{Placement, on_core, on_cores};

/// Returns `pid` and all its descendants.
pub fn family(pid: u32) -> Vec<u32> {
    let mut family = vec![pid];
    let mut next = 0;
    while let Some(&member) = family.get(next) {
        family.extend(children(member));
        next += 1;
    }
    family
}

/// Returns the living child processes of `pid`, whichever of its threads started them.
pub fn children(pid: u32) -> Vec<u32> {
    threads(pid)
        .into_iter()
        .filter_map(|thread| fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).ok())
        .flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Returns the ids of the threads of `pid`; empty once it has ended.
pub fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns how often the threads of `pid` and its descendants have waited for something: each time, somebody woke them
/// or a timer did. Threads that have ended do not count.
pub fn wakes(pid: u32) -> u64 {
    let of_thread = |pid: u32, thread: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap_or_default();
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count.and_then(|count| count.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    family(pid).into_iter().flat_map(|pid| threads(pid).into_iter().map(move |thread| of_thread(pid, thread))).sum()
}

/// Returns the user and system time that `pid` and its descendants have used, in nanoseconds.
///
/// Includes threads that have ended, but not processes that have ended.
pub fn cpu_ns(pid: u32) -> u64 {
    family(pid).into_iter().filter_map(cpu_clock::process_cpu_ns).sum()
}
