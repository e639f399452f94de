//! What went through a device's DMA operations.

use core::sync::atomic::{AtomicU64, Ordering};

/// A reading of the counters. They only grow, but for those of what is live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DmaCounts {
    /// Bytes that were mapped, copied or not.
    pub mapped_bytes: u64,
    /// Bytes that were copied into or out of a pool.
    pub bounced_bytes: u64,
    /// How often the pool had no room: each time somebody waited or was refused.
    pub exhaustions: u64,
    /// Mappings that were not yet given back.
    pub live_mappings: u64,
    /// Bytes of a pool that are in use now, in whole pages.
    pub pool_used_bytes: u64,
}

/// The counters themselves. Each is exact; a reading of several is not of one moment.
#[derive(Debug, Default)]
pub(super) struct Counters {
    mapped_bytes: AtomicU64,
    bounced_bytes: AtomicU64,
    exhaustions: AtomicU64,
    live_mappings: AtomicU64,
}

impl Counters {
    pub(super) fn mapped(&self, len_bytes: usize) {
        self.mapped_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
        self.live_mappings.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn unmapped(&self) {
        self.live_mappings.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn bounced(&self, len_bytes: usize) {
        self.bounced_bytes.fetch_add(len_bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn exhausted(&self) {
        self.exhaustions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> DmaCounts {
        DmaCounts {
            mapped_bytes: self.mapped_bytes.load(Ordering::Relaxed),
            bounced_bytes: self.bounced_bytes.load(Ordering::Relaxed),
            exhaustions: self.exhaustions.load(Ordering::Relaxed),
            live_mappings: self.live_mappings.load(Ordering::Relaxed),
            pool_used_bytes: 0,
        }
    }
}
