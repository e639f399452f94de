//! What the daemon counts: operations and their latencies, bytes, errors; read as OpenMetrics text or as JSON.
//!
//! [`Metrics`] is written by every worker for every request: relaxed additions to a shard that few threads share. Gauges
//! are not kept here: who reads asks their owners ([`Gauges`]). A [`Snapshot`] adds the shards up; [`openmetrics`] and
//! [`report`] render it; [`MetricsServer`] answers on a local socket. [`families`] documents every metric.
//! There are no locks.

pub mod families;
mod histogram;
mod openmetrics;
pub mod report;
mod server;
mod snapshot;

pub use openmetrics::render as render_openmetrics;
pub use report::Report;
pub use server::MetricsServer;
pub use snapshot::{Gauges, Operation, Snapshot, WindowGauges};

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::io::Errno;
use zerocopy::FromZeros;

use crate::stripe;
use families::Counter;
use histogram::BUCKET_COUNT;

/// Operations that are told apart: FUSE's numbers are below, and what is not is counted as the last one.
const OPERATION_COUNT: usize = 64 + 1;

/// Errors that are told apart: Linux's numbers up to EHWPOISON, and what is not is counted as 0.
const ERRNO_COUNT: usize = 134;

/// Shards among which threads are spread. More than the request queues of a usual device, so that workers seldom share
/// one; each has some 60 KiB, of which untouched pages cost nothing.
const SHARD_COUNT: usize = 16;

/// Counters and histograms of a daemon.
#[derive(Debug)]
pub struct Metrics {
    shards: Vec<Shard>,
    started: Instant,
}

/// What a few threads write. Aligned so that two shards share no cache line, nor a pair that the processor fetches at once.
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
    /// Everything at zero; from now on the time counts as uptime.
    pub fn new() -> Self {
        let shards = Shard::new_vec_zeroed(SHARD_COUNT).expect("the process has memory for a megabyte at its start");
        Self { shards, started: Instant::now() }
    }

    /// Counts one request of operation `opcode` that took `duration` and ended with `outcome`.
    pub fn operation(&self, opcode: u32, duration: Duration, outcome: Result<(), Errno>) {
        let shard = self.shard();
        let cells = &shard.operations[(opcode as usize).min(OPERATION_COUNT - 1)];
        // 584 years fit.
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

    /// The sum of all shards, with `gauges` beside it. Threads go on counting meanwhile: figures that belong together may
    /// differ by what happens during the call.
    pub fn snapshot(&self, gauges: Gauges) -> Snapshot {
        Snapshot::of(self, gauges)
    }

    /// The calling thread's shard.
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
