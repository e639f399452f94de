//! The window's ranges: which are free, which are lent, and whose they are.

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

/// The most ranges of a window: 2 TiB, and a bound for what is kept of them, 64 bytes each.
const SLOTS_MAX: u64 = 1 << 20;

/// A shared-memory region in ranges of 2 MiB, used by the inodes of one volume.
pub struct Window<P: Platform> {
    memory: Arc<dyn WindowMemory>,
    slots: Box<[Slot]>,
    pub(super) pool: Mutex<P, { rank::POOL }, Pool<P>>,
    /// How many places are free, for a look without the lock. Set under it.
    free_count: AtomicUsize,
    pub(super) admission: Admission,
    /// Counts requests that might look for a victim; one that is lost between two threads does no harm.
    pub(super) looks: AtomicU32,
    /// A pin or a range that somebody waits for may be free.
    changed: P::Event,
    waiters: AtomicUsize,
    /// Wakes who reclaims.
    pub(super) wanted: Wanted<P::Event>,
    pub(super) tally: Tally,
}

/// A place in the window. Counted under the lock of the ranges that have it; given back under none.
#[derive(Default)]
pub(super) struct Slot {
    uses: AtomicU32,
    pub(super) heat: Heat,
}

/// Which places are free, and whose the others are.
pub(super) struct Pool<P: Platform> {
    pub(super) free: Vec<u32>,
    pub(super) owners: Box<[Option<Owner<P>>]>,
    /// What a sequential reader has left behind, the latest last.
    pub(super) left: Vec<u32>,
    /// Where the search for a victim goes on.
    pub(super) hand: usize,
}

/// Whose a place is.
pub(super) struct Owner<P: Platform> {
    pub(super) inode: Weak<Inode<P>>,
    pub(super) index: u64,
}

/// What happened to a window so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WindowCounts {
    /// Ranges that there are.
    pub ranges: u64,
    /// Of these, how many are free.
    pub free: u64,
    /// Ranges that were mapped.
    pub mapped: u64,
    /// Ranges that were made writable later.
    pub upgraded: u64,
    /// Ranges that gave way to another.
    pub replaced: u64,
    /// Ranges that were unmapped because little was free.
    pub reclaimed: u64,
    /// Times that a range was wanted and was not worth another's place, or none could be had.
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
    /// Takes a window of which nothing is mapped. What is left over of a whole range is not used.
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

    /// How many ranges there are.
    pub fn ranges(&self) -> usize {
        self.slots.len()
    }

    /// What happened so far.
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
        // A pin's offset lies within the window, so that this neither wraps nor is null.
        let address = start.addr().saturating_add(offset as usize);
        start.with_addr(address)
    }

    pub(super) fn slot(&self, slot: u32) -> &Slot {
        &self.slots[slot as usize]
    }

    /// Counts a use; the caller holds the lock of the ranges that have the place.
    pub(super) fn pin(&self, slot: u32) {
        let place = self.slot(slot);
        place.uses.fetch_add(1, Ordering::Relaxed);
        place.heat.touch(self.admission.epoch());
    }

    /// Gives a use back.
    pub(super) fn unpin(&self, slot: u32) {
        // Who waits has announced it before it looked at the count: one of the two sees the other.
        if self.slot(slot).uses.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.announce();
        }
    }

    /// Whether nobody uses the place; lasting only under the lock of the ranges that have it.
    pub(super) fn is_idle(&self, slot: u32) -> bool {
        self.slot(slot).uses.load(Ordering::SeqCst) == 0
    }

    /// Has those look who wait for a pin or a range.
    pub(super) fn announce(&self) {
        fence_in_models();
        if self.waiters.load(Ordering::SeqCst) > 0 {
            self.changed.wake_all();
        }
    }

    /// Waits for `is_done`, which is asked again whenever a pin or a range becomes free; until `deadline_ns` at most.
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

    /// How many places are free; fewer or more by the time that the caller knows.
    pub(super) fn free_count(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    /// A free place, which is the caller's.
    pub(super) fn take_free(&self) -> Option<u32> {
        if self.free_count() == 0 {
            return None;
        }
        let mut pool = self.pool.lock();
        let slot = pool.free.pop();
        self.free_count.store(pool.free.len(), Ordering::Relaxed);
        slot
    }

    /// Gives places back that nothing is mapped at any more.
    pub(super) fn put_free(&self, slots: impl IntoIterator<Item = u32>) {
        let mut pool = self.pool.lock();
        for slot in slots {
            let owner = pool.owners[slot as usize].take();
            debug_assert!(self.is_idle(slot), "a free range is in use");
            pool.free.push(slot);
            // Only a weak reference: nothing is dropped but a count.
            drop(owner);
        }
        self.free_count.store(pool.free.len(), Ordering::Relaxed);
        drop(pool);
        self.announce();
    }

    /// Says whose a place is.
    pub(super) fn own(&self, slot: u32, inode: &Arc<Inode<P>>, index: u64) {
        let owner = Owner { inode: Arc::downgrade(inode), index };
        let before = self.pool.lock().owners[slot as usize].replace(owner);
        drop(before);
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
