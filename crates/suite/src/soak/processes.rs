//! Processes of this machine: who started whom, and what they use.

use std::{
    collections::HashMap,
    fs,
    ops::{Add, AddAssign},
    os::fd::OwnedFd,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Pid, PidfdFlags, pidfd_open},
};

/// What some processes use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Memory of their own, in KiB.
    pub(super) memory_kib: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            memory_kib: self.memory_kib + other.memory_kib,
            descriptors: self.descriptors + other.descriptors,
            threads: self.threads + other.threads,
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// A process that runs.
#[derive(Debug, Clone)]
pub(super) struct Process {
    pub(super) pid: i32,
    /// The name of its program, cut to 15 bytes.
    pub(super) name: String,
}

/// The processes that `root` has started, and those that they have started, and so on; `root` is the first.
pub(super) fn tree(root: u32) -> Vec<Process> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    let mut found = Vec::new();
    for pid in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = pid.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some((process, parent)) = read(pid) else { continue };
        if pid.cast_unsigned() == root {
            found.push(process);
        } else {
            children.entry(parent).or_default().push(process);
        }
    }
    let mut next = 0;
    while let Some(pid) = found.get(next).map(|process| process.pid) {
        found.extend(children.remove(&pid).unwrap_or_default());
        next += 1;
    }
    found
}

/// Waits until all of these have ended, but for each no longer than `limit`.
pub(super) fn wait_for_ends(processes: &[Watched], limit: Duration) {
    let limit = Timespec::try_from(limit).ok();
    for Watched(fd) in processes {
        while poll(&mut [PollFd::new(fd, PollFlags::IN)], limit.as_ref()) == Err(Errno::INTR) {}
    }
}

/// A process whose end is waited for, whoever is its parent.
#[derive(Debug)]
pub(super) struct Watched(OwnedFd);

/// A process and its parent, unless it has ended.
fn read(pid: i32) -> Option<(Process, i32)> {
    // The name is in parentheses and may hold anything; then come the state and the parent.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let mut words = after.split_whitespace();
    let (state, parent) = (words.next()?, words.next()?.parse().ok()?);
    let name = before.split_once('(')?.1.to_owned();
    (!matches!(state, "Z" | "X")).then_some((Process { pid, name }, parent))
}

impl Process {
    /// Returns what tells its end, unless it has ended.
    pub(super) fn watch(&self) -> Option<Watched> {
        pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok().map(Watched)
    }

    /// What it uses; nothing if it has ended meanwhile.
    pub(super) fn usage(&self) -> Usage {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
        };
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).map_or(0, |entries| entries.count() as u64);
        Usage { memory_kib: field("RssAnon:"), descriptors, threads: field("Threads:") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_process_begins_with_it_and_has_its_children() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = tree(std::process::id());
        assert_eq!(found[0].pid.cast_unsigned(), std::process::id());
        assert!(found.iter().any(|process| process.pid.cast_unsigned() == child.id()));
        let usage = found[0].usage();
        assert!(usage.memory_kib > 0 && usage.descriptors > 2 && usage.threads > 0, "{usage:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
