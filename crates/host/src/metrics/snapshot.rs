//! All figures at one moment, out of the shards and from the owners of gauges.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use transom_wire::Opcode;

use super::{
    ERRNO_COUNT, Metrics, OPERATION_COUNT, Shard,
    families::{self, Counter, Family},
    histogram::{self, BUCKET_COUNT},
};
use crate::window::Usage;

/// States that their owners know; [`families`](super::families) documents each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Inodes that the guest knows.
    pub inodes: u64,
    /// Inodes that the guest may know.
    pub inodes_limit: u64,
    /// Requests refused because the guest knew as many inodes as it may.
    pub inodes_refused: u64,
    /// Files and directories that the guest has open.
    pub open_files: u64,
    /// File descriptors held on the guest's behalf.
    pub descriptors: u64,
    /// File descriptors that may be held.
    pub descriptors_limit: u64,
    /// Pairs of an inode and an owner of POSIX locks.
    pub lock_owners: u64,
    /// Requests that wait for a lock.
    pub lock_waiters: u64,
    /// The DAX window, if there is one.
    pub window: Option<WindowGauges>,
    /// Requests in flight of each queue, by its number.
    pub queue_depths: Vec<u64>,
    /// Threads of the pool.
    pub pool_threads: u64,
    /// Threads of the pool that serve a request.
    pub pool_busy: u64,
    /// Requests that wait for a thread of the pool.
    pub pool_queued: u64,
}

/// The DAX window's figures; the counters among them are kept by their owner too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowGauges {
    /// What is mapped, and what that took.
    pub usage: Usage,
    /// The files with most ranges mapped, and their numbers of ranges.
    pub files: Vec<(String, u64)>,
}

/// All figures at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Seconds since the daemon started.
    pub uptime_seconds: f64,
    /// The operations that were asked for at least once, in the order of their numbers.
    pub operations: Vec<Operation>,
    /// Errors by name, those that were answered at least once.
    pub errors: Vec<(String, u64)>,
    /// States.
    pub gauges: Gauges,
    counters: [u64; Counter::ALL.len()],
}

/// One operation's figures.
#[derive(Debug, Clone)]
pub struct Operation {
    /// In lower case; `other` for numbers that are no operation.
    pub name: &'static str,
    /// Requests.
    pub count: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Time spent, in nanoseconds.
    pub duration_sum_ns: u64,
    durations: [u64; BUCKET_COUNT],
}

impl Gauges {
    /// Those that are one number, with their families.
    pub(super) fn single(&self) -> impl Iterator<Item = (Family, u64)> {
        let pairs = [
            (families::INODES, self.inodes),
            (families::INODES_LIMIT, self.inodes_limit),
            (families::INODES_REFUSED, self.inodes_refused),
            (families::OPEN_FILES, self.open_files),
            (families::DESCRIPTORS, self.descriptors),
            (families::DESCRIPTORS_LIMIT, self.descriptors_limit),
            (families::LOCK_OWNERS, self.lock_owners),
            (families::LOCK_WAITERS, self.lock_waiters),
            (families::POOL_THREADS, self.pool_threads),
            (families::POOL_BUSY, self.pool_busy),
            (families::POOL_QUEUED, self.pool_queued),
        ];
        pairs.into_iter()
    }
}

impl Snapshot {
    pub(super) fn of(metrics: &Metrics, gauges: Gauges) -> Self {
        let sum = |cell: &dyn Fn(&Shard) -> &AtomicU64| -> u64 {
            metrics.shards.iter().map(|shard| cell(shard).load(Relaxed)).fold(0, u64::wrapping_add)
        };
        let operations = (0..OPERATION_COUNT).map(|number| {
            let durations: [u64; BUCKET_COUNT] =
                std::array::from_fn(|bucket| sum(&|shard| &shard.operations[number].durations[bucket]));
            Operation {
                name: Opcode::from_u32(number as u32).map_or("other", Opcode::name),
                count: durations.iter().sum(),
                errors: sum(&|shard| &shard.operations[number].errors),
                duration_sum_ns: sum(&|shard| &shard.operations[number].duration_sum_ns),
                durations,
            }
        });
        let errors = (0..ERRNO_COUNT).map(|number| (errno_name(number), sum(&|shard| &shard.errnos[number])));
        Self {
            uptime_seconds: metrics.started.elapsed().as_secs_f64(),
            operations: merge_others(operations.filter(|operation| operation.count > 0)),
            errors: errors.filter(|(_, count)| *count > 0).collect(),
            gauges,
            counters: std::array::from_fn(|index| sum(&|shard| &shard.counters[index])),
        }
    }

    /// The value of `counter`.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

impl Operation {
    /// The latency, in nanoseconds, that `part` of the requests did not exceed; at most a quarter too high, and the highest
    /// bound there is for what is above it. 0 without requests.
    pub fn quantile_ns(&self, part: f64) -> u64 {
        let rank = ((self.count as f64 * part).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (bucket, count) in self.durations.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let highest = histogram::upper_bound_ns(BUCKET_COUNT - 2);
                return histogram::upper_bound_ns(bucket).or(highest).unwrap_or(u64::MAX);
            }
        }
        0
    }

    /// For each power of two, its nanoseconds and the requests that took at most so long.
    pub(super) fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        histogram::coarse_buckets().filter_map(|last| {
            let count = self.durations[..=last].iter().sum();
            histogram::upper_bound_ns(last).map(|bound_ns| (bound_ns, count))
        })
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.errors += other.errors;
        self.duration_sum_ns = self.duration_sum_ns.wrapping_add(other.duration_sum_ns);
        self.durations.iter_mut().zip(other.durations).for_each(|(sum, count)| *sum += count);
    }
}

/// Numbers without an operation become one row, the last.
fn merge_others(operations: impl Iterator<Item = Operation>) -> Vec<Operation> {
    let (mut rows, others): (Vec<Operation>, Vec<Operation>) =
        operations.partition(|operation| operation.name != "other");
    rows.extend(others.into_iter().reduce(|mut sum, other| {
        sum.add(&other);
        sum
    }));
    rows
}

/// `ENOENT` and the like; the number where it has no name.
fn errno_name(number: usize) -> String {
    macro_rules! names {
        ($($name:ident)*) => {
            match number as i32 {
                0 => "other".into(),
                $(libc::$name => stringify!($name).into(),)*
                unnamed => format!("E{unnamed}"),
            }
        };
    }
    names! {
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR
        EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS
        ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EOPNOTSUPP ETIMEDOUT ESTALE EDQUOT ECANCELED
    }
}
