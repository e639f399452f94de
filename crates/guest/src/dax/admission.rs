//! Whether a part of a file is worth a place in a full window.
//!
//! Mapping a range costs as much as some requests, and so does unmapping another. What is not mapped is served by
//! requests instead, and a full window changes only where that pays: each place counts its uses, and a table counts how
//! often parts without a place were asked for. Both counts are halved with time, so that they compare. A part gets a
//! place when it was asked for several times as often as the place was used: then a working set larger than the window
//! keeps what it has.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use transom_wire::NodeId;

/// Requests that a mapping has to save before it is made at another's expense: about what the two requests that it
/// takes, and the page faults of a new mapping, cost.
pub(super) const WORTH_MIN: u32 = 16;
/// So many times as often as a place was used, a part has to be asked for: counts of the same rate differ less by
/// chance.
const LEAD: u32 = 4;
/// After so long counts are halved, in nanoseconds.
const EPOCH_NS: u64 = 100_000_000;
/// After so many, a second, without use a range is unmapped where little is free.
const IDLE_EPOCHS: u16 = 10;
/// Places look up their use in so many entries each: the parts of a working set of a few times the window.
const GHOSTS_PER_SLOT: usize = 4;
/// The table takes half a MiB at most.
const GHOSTS_MAX: usize = 1 << 16;

/// How often a place was used of late.
///
/// The epoch in the upper half, the count in the lower. A use that gets lost between two threads does no harm.
#[derive(Default)]
pub(super) struct Heat {
    counted: AtomicU32,
    /// A sequential reader has left it, and nobody has used it since.
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

    /// Whether the last use is long ago.
    pub(super) fn is_idle(&self, epoch: u16) -> bool {
        epoch.wrapping_sub((self.counted.load(Ordering::Relaxed) >> 16) as u16) >= IDLE_EPOCHS
    }

    /// Something new lies at the place, for which there were `uses` requests: with fewer than it has earned, it would
    /// be the next one's victim.
    pub(super) fn begin(&self, epoch: u16, uses: u8) {
        self.counted.store(pack(epoch, uses), Ordering::Relaxed);
        self.is_left.store(false, Ordering::Relaxed);
    }

    /// Says that a sequential reader goes on to the next range; false where that was said already.
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

/// The count, halved for each epoch since.
fn aged(counted: u32, epoch: u16) -> u8 {
    let age = epoch.wrapping_sub((counted >> 16) as u16);
    (counted as u8).checked_shr(age.into()).unwrap_or(0)
}

/// The table, and the time by which counts are halved.
pub(super) struct Admission {
    epoch: AtomicU32,
    epoch_ends_ns: AtomicU64,
    /// Each a part of a file without a place: a part of its hash above, the count below. Others of the same entry take
    /// turns; a count that gets lost between two threads does no harm.
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

    /// Lets time pass; what is slow anyway calls it.
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

    /// Counts `worth` requests for a part of a file; gives how many there were of late.
    pub(super) fn ask(&self, node: NodeId, index: u64, worth: u32) -> u32 {
        let hash = hash(node, index);
        let (tag, epoch) = ((hash >> 32) as u32, self.epoch());
        let ghost = &self.ghosts[hash as usize & (self.ghosts.len() - 1)];
        let before = ghost.load(Ordering::Relaxed);
        let (owner, count) = ((before >> 32) as u32, aged(before as u32, epoch));
        if owner != tag && count > 0 {
            // The one that is asked for more often stays in the end.
            ghost.store(u64::from(owner) << 32 | u64::from(pack(epoch, count - 1)), Ordering::Relaxed);
            return worth;
        }
        let before = if owner == tag { count } else { 0 };
        let now = before.saturating_add(worth.min(u8::MAX.into()) as u8);
        ghost.store(u64::from(tag) << 32 | u64::from(pack(epoch, now)), Ordering::Relaxed);
        worth.max(now.into())
    }

    /// The uses with which a part begins that was asked for `asked` times, or has to have a place at any price.
    pub(super) fn credit(asked: u32) -> u8 {
        if asked == u32::MAX { WORTH_MIN as u8 } else { asked.clamp(WORTH_MIN, u8::MAX.into()) as u8 }
    }

    /// Whether a part that was asked for `asked` times deserves a place that was used `used` times.
    pub(super) fn deserves(asked: u32, used: u32) -> bool {
        asked >= WORTH_MIN && asked / LEAD > used
    }
}

/// Mixes well enough that neighbours do not meet (splitmix64's finalizer).
fn hash(node: NodeId, index: u64) -> u64 {
    let mut mixed = node.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index;
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}
