//! Counts operations and their latencies, bytes and errors, and serves them as OpenMetrics text and as JSON.
//!
//! [`Metrics`] is updated by every worker for every request: relaxed additions to a shard that few threads share,
//! without locks or allocation. Gauges are not kept here; their owners are asked when somebody reads. `collect` adds
//! the shards up to a [`Snapshot`], `openmetrics` renders it, and [`MetricsServer`] serves it on a local socket.
//! `transom-metrics` defines the schema.

mod collect;
mod openmetrics;
mod server;

pub use server::MetricsServer;

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::io::Errno;
use transom_metrics::{
    Counter, Gauges, Snapshot,
    histogram::{self, BUCKET_COUNT},
};
use transom_wire::OPCODE_LIMIT;
use zerocopy::FromZeros;

use crate::stripe;

/// Opcodes that are counted separately. The last slot counts all that are not below the limit.
const OPERATION_COUNT: usize = OPCODE_LIMIT as usize + 1;

/// Errors that are counted separately: Linux's numbers up to EHWPOISON. Slot 0 counts all others.
const ERRNO_COUNT: usize = 134;

/// Shards among which threads are spread. More than the request queues of a usual device, so that workers seldom share
/// one. Each has about 60 KiB; untouched pages cost nothing.
const SHARD_COUNT: usize = 16;

/// Counters and histograms of a daemon.
#[derive(Debug)]
pub struct Metrics {
    shards: Vec<Shard>,
    started: Instant,
}

/// Counters of a few threads. Aligned so that two shards share neither a cache line nor an adjacent-line prefetch pair.
#[derive(Debug, FromZeros)]
#[repr(C, align(128))]
struct Shard {
    operations: [OperationCells; OPERATION_COUNT],
    counters: [AtomicU64; Counter::ALL.len()],
    errnos: [AtomicU64; ERRNO_COUNT],
}

/// One operation's part of a shard.
#[derive(Debug, FromZeros)]
#[repr(C)]
struct OperationCells {
    duration_sum_ns: AtomicU64,
    errors: AtomicU64,
    durations: [AtomicU64; BUCKET_COUNT],
}

impl Metrics {
    /// Creates counters at zero. Uptime is counted from here.
    pub fn new() -> Self {
        let shards = Shard::new_vec_zeroed(SHARD_COUNT).expect("the process has memory for a megabyte at its start");
        Self { shards, started: Instant::now() }
    }

    /// Counts a request of operation `opcode` that took `duration` and ended with `outcome`.
    pub fn operation(&self, opcode: u32, duration: Duration, outcome: Result<(), Errno>) {
        let shard = self.shard();
        let cells = &shard.operations[(opcode as usize).min(OPERATION_COUNT - 1)];
        // Nanoseconds of 584 years fit.
        let duration_ns = duration.as_nanos() as u64;
        cells.durations[histogram::bucket(duration_ns)].fetch_add(1, Relaxed);
        cells.duration_sum_ns.fetch_add(duration_ns, Relaxed);
        if let Err(errno) = outcome {
            cells.errors.fetch_add(1, Relaxed);
            let number = usize::try_from(errno.raw_os_error()).unwrap_or(0);
            shard.errnos[if number < ERRNO_COUNT { number } else { 0 }].fetch_add(1, Relaxed);
        }
    }

    /// Adds `count` to `counter`.
    pub fn add(&self, counter: Counter, count: u64) {
        self.shard().counters[counter as usize].fetch_add(count, Relaxed);
    }

    /// Returns the sum of all shards, together with `gauges`. Other threads continue to count: related values may
    /// differ by what happens during the call.
    pub fn snapshot(&self, gauges: Gauges) -> Snapshot {
        collect::snapshot(self, gauges)
    }

    /// Returns the calling thread's shard.
    fn shard(&self) -> &Shard {
        &self.shards[stripe::of_this_thread(SHARD_COUNT)]
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[path = "metrics_test.rs"]
mod metrics_test;
