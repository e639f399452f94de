//! Decides whether a part of a file deserves a slot in a full window.
//!
//! Mapping a range costs as much as some requests, and so does unmapping another. Parts that are not mapped are served
//! by requests instead, so a full window changes only if that pays: each slot counts its uses, and a table counts how
//! often parts without a slot were requested. Both counts are halved over time, so they are comparable. A part gets a
//! slot if it was requested several times as often as the slot was used, so a working set larger than the window keeps
//! the mappings that it has.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use transom_wire::NodeId;

/// Number of requests that a mapping must save before it replaces another: about the cost of the two requests that it
/// takes and of the page faults of a new mapping.
pub(super) const WORTH_MIN: u32 = 16;
/// A part must be requested this many times as often as a slot was used: by chance, counts of the same rate differ by
/// less.
const LEAD: u32 = 4;
/// Time after which counts are halved, in nanoseconds.
const EPOCH_NS: u64 = 100_000_000;
/// Number of epochs (one second) after which an unused range is unmapped if little is free.
const IDLE_EPOCHS: u16 = 10;
/// Number of table entries per slot: enough for the parts of a working set of a few times the window.
const GHOSTS_PER_SLOT: usize = 4;
/// Limits the table to half a MiB.
const GHOSTS_MAX: usize = 1 << 16;

/// How often a slot was used recently.
///
/// The epoch is in the upper half, the count in the lower. A use that gets lost between two threads does no harm.
#[derive(Default)]
pub(super) struct Heat {
    counted: AtomicU32,
    /// A sequential reader has left the range, and nobody has used it since.
    is_left: AtomicBool,
}

impl Heat {
    pub(super) fn touch(&self, epoch: u16) {
        let count = aged(self.counted.load(Ordering::Relaxed), epoch);
        self.counted.store(pack(epoch, count.saturating_add(1)), Ordering::Relaxed);
        if self.is_left.load(Ordering::Relaxed) {
            self.is_left.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn get(&self, epoch: u16) -> u32 {
        aged(self.counted.load(Ordering::Relaxed), epoch).into()
    }

    /// Returns whether the last use is long ago.
    pub(super) fn is_idle(&self, epoch: u16) -> bool {
        epoch.wrapping_sub((self.counted.load(Ordering::Relaxed) >> 16) as u16) >= IDLE_EPOCHS
    }

    /// Starts counting for a new range in the slot, for which there were `uses` requests: with a lower count than it
    /// has earned, it would be the next victim.
    pub(super) fn begin(&self, epoch: u16, uses: u8) {
        self.counted.store(pack(epoch, uses), Ordering::Relaxed);
        self.is_left.store(false, Ordering::Relaxed);
    }

    /// Records that a sequential reader has gone on to the next range; returns false if that was already recorded.
    pub(super) fn leave(&self) -> bool {
        !self.is_left.swap(true, Ordering::Relaxed)
    }

    pub(super) fn is_left(&self) -> bool {
        self.is_left.load(Ordering::Relaxed)
    }
}

fn pack(epoch: u16, count: u8) -> u32 {
    u32::from(epoch) << 16 | u32::from(count)
}

/// Returns the count, halved for each epoch since.
fn aged(counted: u32, epoch: u16) -> u8 {
    let age = epoch.wrapping_sub((counted >> 16) as u16);
    (counted as u8).checked_shr(age.into()).unwrap_or(0)
}

/// The table of parts, and the time by which counts are halved.
pub(super) struct Admission {
    epoch: AtomicU32,
    epoch_ends_ns: AtomicU64,
    /// Each entry is for a part of a file without a slot: a part of its hash in the upper half, the count in the lower.
    /// Parts with the same entry take turns; a count that gets lost between two threads does no harm.
    ghosts: Box<[AtomicU64]>,
}

impl Admission {
    pub(super) fn new(slots: usize) -> Self {
        let len = (slots * GHOSTS_PER_SLOT).next_power_of_two().clamp(1, GHOSTS_MAX);
        Self {
            epoch: AtomicU32::new(0),
            epoch_ends_ns: AtomicU64::new(0),
            ghosts: (0..len).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    pub(super) fn epoch(&self) -> u16 {
        self.epoch.load(Ordering::Relaxed) as u16
    }

    /// Advances the time; called by operations that are slow anyway.
    pub(super) fn tick(&self, now_ns: u64) {
        let ends_ns = self.epoch_ends_ns.load(Ordering::Relaxed);
        let next_ns = now_ns.saturating_add(EPOCH_NS);
        let is_over = now_ns >= ends_ns
            && self.epoch_ends_ns.compare_exchange(ends_ns, next_ns, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_over {
            let passed = if ends_ns == 0 { 1 } else { 1 + (now_ns - ends_ns) / EPOCH_NS };
            self.epoch.fetch_add(passed.min(IDLE_EPOCHS.into()) as u32, Ordering::Relaxed);
        }
    }

    /// Counts `worth` requests for a part of a file; returns the number of recent requests.
    pub(super) fn ask(&self, node: NodeId, index: u64, worth: u32) -> u32 {
        let hash = hash(node, index);
        let (tag, epoch) = ((hash >> 32) as u32, self.epoch());
        let ghost = &self.ghosts[hash as usize & (self.ghosts.len() - 1)];
        let before = ghost.load(Ordering::Relaxed);
        let (owner, count) = ((before >> 32) as u32, aged(before as u32, epoch));
        if owner != tag && count > 0 {
            // In the end the part that is requested more often stays.
            ghost.store(u64::from(owner) << 32 | u64::from(pack(epoch, count - 1)), Ordering::Relaxed);
            return worth;
        }
        let before = if owner == tag { count } else { 0 };
        let now = before.saturating_add(worth.min(u8::MAX.into()) as u8);
        ghost.store(u64::from(tag) << 32 | u64::from(pack(epoch, now)), Ordering::Relaxed);
        worth.max(now.into())
    }

    /// Returns the initial count of uses for a part that was requested `asked` times, or that must get a slot at any
    /// price.
    pub(super) fn credit(asked: u32) -> u8 {
        if asked == u32::MAX { WORTH_MIN as u8 } else { asked.clamp(WORTH_MIN, u8::MAX.into()) as u8 }
    }

    /// Returns whether a part that was requested `asked` times deserves a slot that was used `used` times.
    pub(super) fn deserves(asked: u32, used: u32) -> bool {
        asked >= WORTH_MIN && asked / LEAD > used
    }
}

/// Mixes well enough that neighbours do not collide (splitmix64's finalizer).
fn hash(node: NodeId, index: u64) -> u64 {
    let mut mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
