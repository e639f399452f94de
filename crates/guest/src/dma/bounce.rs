//! A memory pool that the device can access, and copies between it and all other memory; one for each device.
//!
//! For guests whose memory the host must not see, and for processes, which share an arena with a back end. Memory that
//! already lies in the pool is mapped in place. Allocations come from the upper half while it has room, so that they
//! leave no gaps among the mappings, which are short-lived and long. Lock: `pages`, held only while pages are searched
//! and marked.

#![expect(unsafe_code, reason = "bytes are copied from and to pointers that the caller vouches for")]

use alloc::sync::Arc;
use core::ptr::NonNull;

use super::{
    Direction, DmaCounts, DmaError, DmaMemory, DmaOps, Mapped,
    counters::Counters,
    pages::{PAGE, Pages},
};
use crate::{
    memory::IoSliceMut,
    platform::{Event as _, Platform},
    sync::{Mutex, rank},
};

/// Maximum length of a mapping unless the pool is small: a message's data in one piece, plus what a misaligned one
/// needs.
const MAPPING_LEN_MAX: usize = 1 << 20;

/// What a mapping does when the pool has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits for at most this many nanoseconds until enough is freed, and then fails, so that callers that each hold
    /// a part of the pool and want more do not wait for each other forever. On a platform with one thread it fails at
    /// once, because that thread itself would have to free something.
    Wait(u64),
    /// It fails with [`DmaError::Exhausted`].
    Fail,
}

/// A bounce-buffer pool for one device.
pub struct Bounce<P: Platform> {
    platform: Arc<P>,
    pool: DmaMemory,
    pages: Mutex<P, { rank::DEVICE }, Pages>,
    when_full: WhenFull,
    /// Signalled when pages are freed.
    room: P::Event,
    counters: Counters,
    /// Owns the memory of `pool`.
    _owner: Option<Arc<dyn Send + Sync>>,
}

impl<P: Platform> Bounce<P> {
    /// Creates a pool over `pool`, whose address is a multiple of 4096. Bytes past the last whole page are not used.
    ///
    /// [`Self::allocate`](DmaOps::allocate) never waits, whatever `when_full` says: rings and buffers are long-lived.
    pub fn new(platform: Arc<P>, pool: DmaMemory, when_full: WhenFull) -> Self {
        Self::within(platform, pool, when_full, None)
    }

    /// As [`Self::new`], and keeps `owner`, to which the memory belongs, for as long as the operations exist.
    pub fn owning(platform: Arc<P>, pool: DmaMemory, when_full: WhenFull, owner: Arc<dyn Send + Sync>) -> Self {
        Self::within(platform, pool, when_full, Some(owner))
    }

    fn within(platform: Arc<P>, pool: DmaMemory, when_full: WhenFull, owner: Option<Arc<dyn Send + Sync>>) -> Self {
        debug_assert!(pool.address() % PAGE as u64 == 0, "{:#x}", pool.address());
        let pages = Mutex::new(Pages::new(pool.len() / PAGE));
        let (room, counters) = (P::Event::default(), Counters::default());
        Self { platform, pool, pages, when_full, room, counters, _owner: owner }
    }

    /// Returns the offset of `start` in the pool, if `len_bytes` from there are inside.
    fn offset_in_pool(&self, start: NonNull<u8>, len_bytes: usize) -> Option<usize> {
        let offset = start.addr().get().checked_sub(self.pool.start().addr().get())?;
        (offset.checked_add(len_bytes)? <= self.pool.len()).then_some(offset)
    }

    fn exhausted(&self, wanted_bytes: usize) -> DmaError {
        DmaError::Exhausted { wanted_bytes, pool_bytes: self.pool.len() }
    }

    /// Returns the offset of a run of pages for `len_bytes`; waits for it if `when_full` says so.
    fn take(&self, len_bytes: usize) -> Result<usize, DmaError> {
        let pages = len_bytes.div_ceil(PAGE).max(1);
        let mut taken = self.pages.lock().take(pages);
        if taken.is_none() {
            self.counters.exhausted();
            match self.when_full {
                WhenFull::Wait(ns) if !self.platform.is_single_threaded() => {
                    let deadline_ns = self.platform.now_ns().saturating_add(ns);
                    self.room.wait(
                        &mut || {
                            taken = self.pages.lock().take(pages);
                            taken.is_some()
                        },
                        Some(deadline_ns),
                    );
                }
                _ => {}
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
            // SAFETY: the caller guarantees that `start` and `len_bytes` after it may be read and that nobody writes
            // there; they are not part of the pool.
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
            // SAFETY: the caller of `map` guarantees that `start` and `len_bytes` after it may be written, and that
            // others access them atomically at most, byte by byte; they are not part of the pool.
            let to = unsafe { IoSliceMut::shared(start, written_bytes) };
            self.pool.slice(offset..offset + written_bytes).copy_to(to);
            self.counters.bounced(start, written_bytes);
        }
        self.give(offset, len_bytes);
    }

    fn is_in_place(&self, start: NonNull<u8>, len_bytes: usize) -> bool {
        self.offset_in_pool(start, len_bytes).is_some()
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
