//! The values of all metrics at one moment.

use crate::{
    families::{self, Counter, Family},
    histogram::{self, BUCKET_COUNT},
};

/// Values that the owner of a resource reports; [`families`] documents each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gauges {
    /// [`families::INODES`].
    pub inodes: u64,
    /// [`families::INODES_LIMIT`].
    pub inodes_limit: u64,
    /// [`families::INODES_REFUSED`].
    pub inodes_refused: u64,
    /// [`families::OPEN_FILES`].
    pub open_files: u64,
    /// [`families::DESCRIPTORS`].
    pub descriptors: u64,
    /// [`families::DESCRIPTORS_LIMIT`].
    pub descriptors_limit: u64,
    /// [`families::LOCK_OWNERS`].
    pub lock_owners: u64,
    /// [`families::LOCK_WAITERS`].
    pub lock_waiters: u64,
    /// The DAX window, if there is one.
    pub window: Option<WindowGauges>,
    /// The quota, if there is one.
    pub quota: Option<QuotaGauges>,
    /// The coherence group, if there is one.
    pub group: Option<GroupGauges>,
    /// The agent, if changes of the host are announced to one.
    pub replays: Option<ReplayGauges>,
    /// [`families::QUEUE_DEPTH`], indexed by queue number.
    pub queue_depths: Vec<u64>,
    /// [`families::POOL_THREADS`].
    pub pool_threads: u64,
    /// [`families::POOL_BUSY`].
    pub pool_busy: u64,
    /// [`families::POOL_QUEUED`].
    pub pool_queued: u64,
}

/// The state of a quota.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaGauges {
    /// [`families::QUOTA_BYTES`].
    pub bytes: u64,
    /// [`families::QUOTA_BYTES_LIMIT`].
    pub bytes_limit: u64,
    /// [`families::QUOTA_FILES`].
    pub files: u64,
    /// [`families::QUOTA_REFUSED`].
    pub refused: u64,
}

/// The state of a coherence group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupGauges {
    /// [`families::GROUP_MEMBERS`].
    pub members: u64,
    /// [`families::GROUP_STAMPS`].
    pub stamps: u64,
    /// [`families::GROUP_EPOCHS`].
    pub epochs: u64,
    /// [`families::GROUP_HOST_WATCHED`].
    pub host_watched: u64,
    /// [`families::GROUP_HOST_CHANGES`].
    pub host_changes: u64,
    /// [`families::GROUP_HOST_CHANGES_TIMED`].
    pub host_changes_timed: u64,
    /// [`families::GROUP_HOST_DELAY`], in nanoseconds.
    pub host_delay_ns: u64,
}

/// The state of the DAX window.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowGauges {
    /// What is mapped, and the work so far.
    pub usage: WindowUsage,
    /// The files with the most ranges mapped, and their number of ranges.
    pub files: Vec<(String, u64)>,
}

/// What is mapped in the DAX window, and the work so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WindowUsage {
    /// [`families::WINDOW_BYTES`].
    pub len_bytes: u64,
    /// [`families::WINDOW_RANGES`].
    pub ranges_mapped: u64,
    /// [`families::WINDOW_MAPS`].
    pub maps: u64,
    /// [`families::WINDOW_UNMAPS`].
    pub unmaps: u64,
    /// [`families::WINDOW_REFUSED`].
    pub refused: u64,
    /// [`families::WINDOW_MAP_DURATION`], in nanoseconds.
    pub map_ns: u64,
}

/// What became of changes of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayGauges {
    /// [`families::AGENTS`].
    pub agents: u64,
    /// [`families::AGENT_KEEPS_UP`].
    pub keeps_up: u64,
    /// [`families::CHANGES_REPLAYED`].
    pub replayed: u64,
    /// [`families::CHANGES_SKIPPED`].
    pub skipped: u64,
    /// [`families::CHANGES_LOST`].
    pub overflows: u64,
    /// [`families::CHANGES_WAITING`].
    pub waiting: u64,
    /// [`families::REPLAY_DELAY`], in nanoseconds.
    pub delay_ns: u64,
}

/// The values of all metrics at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Seconds since the daemon started.
    pub uptime_seconds: f64,
    /// The operations requested at least once, ordered by opcode.
    pub operations: Vec<Operation>,
    /// The errors returned at least once, by name, with their count.
    pub errors: Vec<(String, u64)>,
    /// Values that the owner of a resource reports.
    pub gauges: Gauges,
    /// The value of each counter, in the order of [`Counter::ALL`].
    pub counters: [u64; Counter::ALL.len()],
}

/// The requests of one operation.
#[derive(Debug, Clone)]
pub struct Operation {
    /// The operation's name in lower case; `other` for unknown opcodes.
    pub name: &'static str,
    /// Requests that failed.
    pub errors: u64,
    /// The sum of the latencies, in nanoseconds.
    pub duration_sum_ns: u64,
    /// The number of requests in each latency bucket, see [`histogram`].
    pub durations: [u64; BUCKET_COUNT],
}

impl Gauges {
    /// Returns each plain number with its family.
    pub fn plain(&self) -> impl Iterator<Item = (Family, u64)> {
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
        let group = self.group.map(|group| {
            [
                (families::GROUP_MEMBERS, group.members),
                (families::GROUP_STAMPS, group.stamps),
                (families::GROUP_EPOCHS, group.epochs),
                (families::GROUP_HOST_WATCHED, group.host_watched),
                (families::GROUP_HOST_CHANGES, group.host_changes),
                (families::GROUP_HOST_CHANGES_TIMED, group.host_changes_timed),
            ]
        });
        let quota = self.quota.map(|quota| {
            [
                (families::QUOTA_BYTES, quota.bytes),
                (families::QUOTA_BYTES_LIMIT, quota.bytes_limit),
                (families::QUOTA_FILES, quota.files),
                (families::QUOTA_REFUSED, quota.refused),
            ]
        });
        pairs.into_iter().chain(quota.into_iter().flatten()).chain(group.into_iter().flatten())
    }
}

impl ReplayGauges {
    /// Returns each plain number with its family.
    pub fn plain(&self) -> [(Family, u64); 6] {
        [
            (families::AGENTS, self.agents),
            (families::AGENT_KEEPS_UP, self.keeps_up),
            (families::CHANGES_REPLAYED, self.replayed),
            (families::CHANGES_SKIPPED, self.skipped),
            (families::CHANGES_LOST, self.overflows),
            (families::CHANGES_WAITING, self.waiting),
        ]
    }
}

impl Snapshot {
    /// Returns the value of `counter`.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }
}

impl Operation {
    /// Returns the number of requests.
    pub fn count(&self) -> u64 {
        self.durations.iter().sum()
    }

    /// Returns the latency, in nanoseconds, that the fraction `part` of the requests did not exceed; 0 if there were
    /// none.
    ///
    /// The result is the upper bound of a bucket and at most 25 % too high. Latencies in the last bucket, which is
    /// unbounded, count as the highest bound.
    pub(crate) fn quantile_ns(&self, part: f64) -> u64 {
        let count = self.count();
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
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

    /// Returns, for each power of two in nanoseconds, the number of requests between it and the one below.
    ///
    /// Requests above the highest bound are not part of any item.
    pub fn coarse_durations(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut next = 0;
        histogram::coarse_buckets().filter_map(move |last| {
            let count = self.durations[next..=last].iter().sum();
            next = last + 1;
            histogram::upper_bound_ns(last).map(|bound_ns| (bound_ns, count))
        })
    }

    /// Adds the requests of `other`.
    pub fn add(&mut self, other: &Self) {
        self.errors += other.errors;
        self.duration_sum_ns = self.duration_sum_ns.wrapping_add(other.duration_sum_ns);
        self.durations.iter_mut().zip(other.durations).for_each(|(sum, count)| *sum += count);
    }
}

#[cfg(test)]
#[path = "snapshot_test.rs"]
mod snapshot_test;
