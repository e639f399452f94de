//! What the executable uses, as the kernel counts it.

use crate::host::Daemon;

/// Memory that may come and go without being kept for a request: arenas, stacks and tables of a few threads.
pub(super) const MEMORY_SLACK_KIB: u64 = 2048;

/// Descriptors that may come and go: a connection to the metrics, and files that the inode table keeps open for speed
/// (256 files that handles stand in for).
pub(super) const DESCRIPTOR_SLACK: u64 = 320;

/// What a process uses now.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    /// Memory of its own, in KiB.
    pub(super) memory_kib: u64,
    pub(super) descriptors: u64,
    pub(super) threads: u64,
}

impl Usage {
    pub(super) fn of(daemon: &Daemon) -> Self {
        let process = format!("/proc/{}", daemon.pid().as_raw_pid());
        let status = std::fs::read_to_string(format!("{process}/status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_end_matches("kB").trim().parse().unwrap()
        };
        Self {
            memory_kib: field("RssAnon:"),
            descriptors: std::fs::read_dir(format!("{process}/fd")).unwrap().count() as u64,
            threads: field("Threads:"),
        }
    }
}

/// Runs `repeat` for N repetitions and for 3N more, and compares what the daemon uses after each part.
///
/// Memory and descriptors grow by no more than the slack from N to 4N repetitions, threads not beyond [`THREADS_MAX`].
pub(super) fn assert_flat(daemon: &Daemon, what: &str, count: u64, mut repeat: impl FnMut(u64)) {
    repeat(count);
    let before = Usage::of(daemon);
    repeat(3 * count);
    let after = Usage::of(daemon);
    println!("{what}: {count} times {before:?}, {} times {after:?}", 4 * count);
    let memory_growth = after.memory_kib.saturating_sub(before.memory_kib);
    assert!(memory_growth <= MEMORY_SLACK_KIB, "{what}: {} repetitions took {memory_growth} KiB", 3 * count);
    let descriptor_growth = after.descriptors.saturating_sub(before.descriptors);
    assert!(descriptor_growth <= DESCRIPTOR_SLACK, "{what}: {} repetitions took {descriptor_growth} fds", 3 * count);
    assert!(after.threads <= before.threads.max(THREADS_MAX), "{what}: {before:?}, then {after:?}");
}

/// Threads of a daemon with three queues that nothing waits for: main, front end, log, metrics, tidying, three workers,
/// four of the pool, and one that interrupts waiters.
pub(super) const THREADS_MAX: u64 = 16;
