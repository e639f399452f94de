//! Counters of a device's DMA operations.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use super::pages::PAGE;

/// A snapshot of the counters. They only grow, except those of current use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DmaCounts {
    /// Bytes that were mapped, copied or not.
    pub mapped_bytes: u64,
    /// Bytes that were copied into or out of a pool.
    pub bounced_bytes: u64,
    /// How often the pool had no room: each time a caller waited or failed.
    pub exhaustions: u64,
    /// Mappings that were not yet unmapped.
    pub live_mappings: u64,
    /// Bytes of a pool that are in use now, in whole pages.
    pub pool_used_bytes: u64,
}

/// Number of shards: threads that use different memory count in different shards, so counting does not transfer cache
/// lines.
const SHARDS: usize = 8;

/// The counters themselves. Each is exact, but a snapshot of several is not atomic.
#[derive(Debug, Default)]
pub(super) struct Counters {
    shards: [Shard; SHARDS],
    exhaustions: AtomicU64,
}

/// Counters on cache lines of their own; two, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    mapped_bytes: AtomicU64,
    bounced_bytes: AtomicU64,
    live_mappings: AtomicU64,
}

impl Counters {
    #[inline]
    pub(super) fn mapped(&self, start: NonNull<u8>, len_bytes: usize) {
        let shard = self.shard(start);
        shard.mapped_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
        shard.live_mappings.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn unmapped(&self, start: NonNull<u8>) {
        self.shard(start).live_mappings.fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    pub(super) fn bounced(&self, start: NonNull<u8>, len_bytes: usize) {
        self.shard(start).bounced_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn exhausted(&self) {
        self.exhaustions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> DmaCounts {
        let sum = |counter: fn(&Shard) -> &AtomicU64| {
            self.shards.iter().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
        };
        DmaCounts {
            mapped_bytes: sum(|shard| &shard.mapped_bytes),
            bounced_bytes: sum(|shard| &shard.bounced_bytes),
            exhaustions: self.exhaustions.load(Ordering::Relaxed),
            live_mappings: sum(|shard| &shard.live_mappings),
            pool_used_bytes: 0,
        }
    }

    fn shard(&self, start: NonNull<u8>) -> &Shard {
        &self.shards[start.addr().get() / PAGE % SHARDS]
    }
}
