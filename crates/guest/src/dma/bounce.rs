//! A pool that the device reaches, and copies between it and everything else: one for each device.
//!
//! For guests whose memory the host must not see, and for processes, whose arena is what a back end shares with them.
//! What already lies in the pool is mapped where it is. What is allocated lies in the upper half while that has room,
//! so that it leaves no gaps among the mappings, which are short-lived and long. Lock: `pages`, held only while pages
//! are searched and marked.

#![expect(unsafe_code, reason = "bytes are copied from and to pointers that the caller vouches for")]

use alloc::sync::Arc;
use core::ptr::NonNull;

use super::{
    Direction, DmaCounts, DmaError, DmaMemory, DmaOps, Mapped,
    counters::Counters,
    pages::{PAGE, Pages},
};
use crate::{
    platform::{Event as _, Platform},
    sync::{Mutex, rank},
};

/// The longest mapping unless the pool is small: a message's data in one piece, with what a misaligned one needs.
const MAPPING_LEN_MAX: usize = 1 << 20;

/// What a mapping does when the pool has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits until enough was given back, for so many nanoseconds at most, and then fails: callers that each hold a
    /// part of the pool and want more must not wait for each other for ever. On a platform with one thread it fails at
    /// once: that thread is who would have to give something back.
    Wait(u64),
    /// It fails with [`DmaError::Exhausted`].
    Fail,
}

/// A pool for one device.
pub struct Bounce<P: Platform> {
    platform: Arc<P>,
    pool: DmaMemory,
    pages: Mutex<P, { rank::DEVICE }, Pages>,
    when_full: WhenFull,
    /// Woken when pages were given back.
    room: P::Event,
    counters: Counters,
    /// What `pool` is a part of.
    _owner: Option<Arc<dyn Send + Sync>>,
}

impl<P: Platform> Bounce<P> {
    /// A pool on `pool`, whose address is a multiple of 4096. Bytes behind the last whole page are not used.
    ///
    /// [`Self::allocate`](DmaOps::allocate) never waits, whatever `when_full` says: rings and buffers live long.
    pub fn new(platform: Arc<P>, pool: DmaMemory, when_full: WhenFull) -> Self {
        Self::within(platform, pool, when_full, None)
    }

    /// As [`Self::new`], and keeps `owner`, whose memory it is, for as long as there are operations.
    pub fn owning(platform: Arc<P>, pool: DmaMemory, when_full: WhenFull, owner: Arc<dyn Send + Sync>) -> Self {
        Self::within(platform, pool, when_full, Some(owner))
    }

    fn within(platform: Arc<P>, pool: DmaMemory, when_full: WhenFull, owner: Option<Arc<dyn Send + Sync>>) -> Self {
        debug_assert!(pool.address().is_multiple_of(PAGE as u64), "{:#x}", pool.address());
        let pages = Mutex::new(Pages::new(pool.len() / PAGE));
        let (room, counters) = (P::Event::default(), Counters::default());
        Self { platform, pool, pages, when_full, room, counters, _owner: owner }
    }

    /// Where in the pool `start` lies, if `len_bytes` from there on are inside.
    fn offset_in_pool(&self, start: NonNull<u8>, len_bytes: usize) -> Option<usize> {
        let offset = start.addr().get().checked_sub(self.pool.start().addr().get())?;
        (offset.checked_add(len_bytes)? <= self.pool.len()).then_some(offset)
    }

    fn exhausted(&self, wanted_bytes: usize) -> DmaError {
        DmaError::Exhausted { wanted_bytes, pool_bytes: self.pool.len() }
    }

    /// The offset of a run of pages for `len_bytes`; waits for it where that was chosen.
    fn take(&self, len_bytes: usize) -> Result<usize, DmaError> {
        let pages = len_bytes.div_ceil(PAGE).max(1);
        let mut taken = self.pages.lock().take(pages);
        if taken.is_none() {
            self.counters.exhausted();
            if let WhenFull::Wait(ns) = self.when_full
                && !self.platform.is_single_threaded()
            {
                let deadline_ns = self.platform.now_ns().saturating_add(ns);
                self.room.wait(
                    &mut || {
                        taken = self.pages.lock().take(pages);
                        taken.is_some()
                    },
                    Some(deadline_ns),
                );
            }
        }
        taken.map(|page| page * PAGE).ok_or_else(|| self.exhausted(len_bytes))
    }

    fn give(&self, offset: usize, len_bytes: usize) {
        self.pages.lock().give(offset / PAGE, len_bytes.div_ceil(PAGE).max(1));
        self.room.wake_all();
    }
}

impl<P: Platform> DmaOps for Bounce<P> {
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        let pages = len_bytes.div_ceil(PAGE).max(1);
        let taken = self.pages.lock().take_for_long(pages);
        let offset = taken.ok_or_else(|| {
            self.counters.exhausted();
            self.exhausted(len_bytes)
        })? * PAGE;
        self.pool.fill(offset, len_bytes, 0);
        Ok(self.pool.part(offset, len_bytes))
    }

    fn free(&self, memory: DmaMemory) {
        if let Some(offset) = self.offset_in_pool(memory.start(), memory.len()) {
            self.give(offset, memory.len());
        }
    }

    #[inline]
    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError> {
        let len_max_bytes = self.mapping_len_max();
        if len_bytes > len_max_bytes {
            return Err(DmaError::TooLong { wanted_bytes: len_bytes, len_max_bytes });
        }
        if let Some(offset) = self.offset_in_pool(start, len_bytes) {
            self.counters.mapped(start, len_bytes);
            return Ok(Mapped {
                address: self.pool.address() + offset as u64,
                len_bytes,
                start,
                direction,
                copy: None,
            });
        }
        let offset = self.take(len_bytes)?;
        let copy = self.pool.part(offset, len_bytes);
        if direction == Direction::ToDevice {
            // SAFETY: `start` and `len_bytes` after it may be read, and nobody writes there, as the caller vouches;
            // they are not part of the pool.
            copy.write(0, unsafe { core::slice::from_raw_parts(start.as_ptr(), len_bytes) });
            self.counters.bounced(start, len_bytes);
        }
        self.counters.mapped(start, len_bytes);
        Ok(Mapped { address: copy.address(), len_bytes, start, direction, copy: Some(copy.start()) })
    }

    #[inline]
    unsafe fn unmap(&self, mapped: Mapped, written_bytes: usize) {
        let Mapped { len_bytes, start, direction, copy, .. } = mapped;
        self.counters.unmapped(start);
        let Some(offset) = copy.and_then(|copy| self.offset_in_pool(copy, len_bytes)) else { return };
        if direction == Direction::FromDevice {
            let written_bytes = written_bytes.min(len_bytes);
            let copy = self.pool.part(offset, written_bytes);
            // SAFETY: `start` and `len_bytes` after it may be written, and nobody else has them, as `map`'s caller
            // vouches; they are not part of the pool.
            copy.read(0, unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), written_bytes) });
            self.counters.bounced(start, written_bytes);
        }
        self.give(offset, len_bytes);
    }

    fn mapping_len_max(&self) -> usize {
        // A quarter of the pool at most, so that one mapping leaves room for others.
        (self.pool.len() / 4 / PAGE * PAGE).clamp(PAGE, MAPPING_LEN_MAX)
    }

    fn keepable_bytes(&self) -> usize {
        self.pages.lock().keepable() * PAGE
    }

    fn counts(&self) -> DmaCounts {
        DmaCounts { pool_used_bytes: (self.pages.lock().used() * PAGE) as u64, ..self.counters.read() }
    }
}
