//! The window's slots: which are free, which are pinned, and who owns them.

use alloc::{
    boxed::Box,
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{ptr::NonNull, sync::atomic::AtomicU64};

use super::{
    RANGE_LEN, WindowMemory,
    admission::{Admission, Heat},
    worker::Wanted,
};
use crate::{
    Platform,
    platform::Event as _,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicUsize, Ordering, fence_in_models},
        rank,
    },
    volume::Inode,
};

/// Maximum number of ranges of a window: 2 TiB, which also limits their bookkeeping of 64 bytes each.
const SLOTS_MAX: u64 = 1 << 20;

/// A shared-memory region divided into ranges of 2 MiB, used by the inodes of one volume.
pub struct Window<P: Platform> {
    memory: Arc<dyn WindowMemory>,
    slots: Box<[Slot]>,
    pub(super) pool: Mutex<P, { rank::POOL }, Pool<P>>,
    /// Number of free slots, for reading without the lock. Set under it.
    free_count: AtomicUsize,
    pub(super) admission: Admission,
    /// Counts requests that might look for a victim; a count that gets lost between two threads does no harm.
    pub(super) looks: AtomicU32,
    /// Signalled when a pin or a range that somebody waits for may be available.
    changed: P::Event,
    waiters: AtomicUsize,
    /// Wakes the reclaiming thread.
    pub(super) wanted: Wanted<P::Event>,
    pub(super) tally: Tally,
}

/// A slot of the window. Uses are counted under the lock of the ranges that own the slot, and released under no lock.
#[derive(Default)]
pub(super) struct Slot {
    uses: AtomicU32,
    pub(super) heat: Heat,
}

/// The free slots, and the owners of the others.
pub(super) struct Pool<P: Platform> {
    pub(super) free: Vec<u32>,
    pub(super) owners: Box<[Option<Owner<P>>]>,
    /// Slots that a sequential reader has left, the latest last.
    pub(super) left: Vec<u32>,
    /// Where the next search for a victim begins.
    pub(super) hand: usize,
}

/// The owner of a slot.
pub(super) struct Owner<P: Platform> {
    pub(super) inode: Weak<Inode<P>>,
    pub(super) index: u64,
}

/// Counters of a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Total number of ranges.
    pub ranges: u64,
    /// Number of free ranges.
    pub free: u64,
    /// Ranges that were mapped.
    pub mapped: u64,
    /// Ranges that were made writable later.
    pub upgraded: u64,
    /// Ranges that were replaced by another.
    pub replaced: u64,
    /// Ranges that were unmapped because little was free.
    pub reclaimed: u64,
    /// Times that a range was requested but did not deserve a slot, or that none was available.
    pub denied: u64,
    /// Mappings that the server refused.
    pub refused: u64,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) mapped: AtomicU64,
    pub(super) upgraded: AtomicU64,
    pub(super) replaced: AtomicU64,
    pub(super) reclaimed: AtomicU64,
    pub(super) denied: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl<P: Platform> Window<P> {
    /// Creates a window of which nothing is mapped. A remainder smaller than a range is not used.
    pub fn new(memory: Arc<dyn WindowMemory>) -> Self {
        let count = (memory.len_bytes() / RANGE_LEN).min(SLOTS_MAX) as u32;
        let pool = Pool {
            free: (0..count).rev().collect(),
            owners: (0..count).map(|_| None).collect(),
            left: Vec::new(),
            hand: 0,
        };
        Self {
            memory,
            slots: (0..count).map(|_| Slot::default()).collect(),
            free_count: AtomicUsize::new(pool.free.len()),
            pool: Mutex::new(pool),
            admission: Admission::new(count as usize),
            looks: AtomicU32::new(0),
            changed: P::Event::default(),
            waiters: AtomicUsize::new(0),
            wanted: Wanted::default(),
            tally: Tally::default(),
        }
    }

    /// Returns the number of ranges.
    pub fn ranges(&self) -> usize {
        self.slots.len()
    }

    /// Returns the counters.
    pub fn counts(&self) -> WindowCounts {
        let Tally { mapped, upgraded, replaced, reclaimed, denied, refused } = &self.tally;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WindowCounts {
            ranges: self.slots.len() as u64,
            free: self.free_count() as u64,
            mapped: read(mapped),
            upgraded: read(upgraded),
            replaced: read(replaced),
            reclaimed: read(reclaimed),
            denied: read(denied),
            refused: read(refused),
        }
    }

    pub(super) fn memory(&self) -> &dyn WindowMemory {
        &*self.memory
    }

    pub(super) fn address(&self, offset: u64) -> NonNull<u8> {
        let start = self.memory.start();
        // A pin's offset lies within the window, so this neither wraps nor is null.
        let address = start.addr().saturating_add(offset as usize);
        start.with_addr(address)
    }

    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Counts a use; the caller holds the lock of the ranges that own the slot.
    pub(super) fn pin(&self, slot: u32) {
        let place = self.slot(slot);
        place.uses.fetch_add(1, Ordering::Relaxed);
        place.heat.touch(self.admission.epoch());
    }

    /// Releases a use.
    pub(super) fn unpin(&self, slot: u32) {
        // A waiter announces itself before it checks the count: one of the two sees the other.
        if self.slot(slot).uses.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.announce();
        }
    }

    /// Returns whether nobody uses the slot. This stays true only under the lock of the ranges that own it.
    pub(super) fn is_idle(&self, slot: u32) -> bool {
        self.slot(slot).uses.load(Ordering::SeqCst) == 0
    }

    /// Makes those that wait for a pin or a range check again.
    pub(super) fn announce(&self) {
        fence_in_models();
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.changed.wake_all();
        }
    }

    /// Waits for `is_done`, which is checked whenever a pin or a range becomes available, until `deadline_ns` at most.
    pub(super) fn wait(&self, mut is_done: impl FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
        rank::may_wait::<P>();
        if is_done() {
            return true;
        }
        self.waiters.fetch_add(1, Ordering::SeqCst);
        fence_in_models();
        let was_done = self.changed.wait(&mut is_done, deadline_ns);
        self.waiters.fetch_sub(1, Ordering::SeqCst);
        was_done
    }

    /// Returns the number of free slots, which may have changed by the time the caller sees it.
    pub(super) fn free_count(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    /// Returns a free slot, which then belongs to the caller.
    pub(super) fn take_free(&self) -> Option<u32> {
        if self.free_count() == 0 {
            return None;
        }
        let mut pool = self.pool.lock();
        let slot = pool.free.pop();
        self.free_count.store(pool.free.len(), Ordering::Relaxed);
        slot
    }

    /// Returns slots at which nothing is mapped any more to the pool.
    pub(super) fn put_free(&self, slots: impl IntoIterator<Item = u32>) {
        let mut pool = self.pool.lock();
        for slot in slots {
            let owner = pool.owners[slot as usize].take();
            debug_assert!(self.is_idle(slot), "a free range is in use");
            pool.free.push(slot);
            // Only a weak reference: nothing but a count is dropped.
            drop(owner);
        }
        self.free_count.store(pool.free.len(), Ordering::Relaxed);
        drop(pool);
        self.announce();
    }

    /// Records the owner of a slot.
    pub(super) fn own(&self, slot: u32, inode: &Arc<Inode<P>>, index: u64) {
        let owner = Owner { inode: Arc::downgrade(inode), index };
        let before = self.pool.lock().owners[slot as usize].replace(owner);
        drop(before);
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
