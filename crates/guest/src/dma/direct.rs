//! Memory that the device reaches where it is: no copy, and an address that the platform computes.

#![expect(unsafe_code, reason = "a mapping is made of a pointer, which the caller vouches for")]

use core::ptr::NonNull;

use super::{Direction, DmaCounts, DmaError, DmaMemory, DmaOps, Mapped, counters::Counters};

/// What a system tells about its own memory.
pub trait DirectMemory: Send + Sync {
    /// Allocates physically contiguous memory, zeroed, its device address a multiple of 4096; nothing when there is
    /// none.
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory>;

    /// Takes back what [`Self::allocate`] gave.
    fn free(&self, memory: DmaMemory);

    /// Where the device finds `len_bytes` at `start`, at most [`Self::contiguous_len_max`]; nothing for memory that it
    /// does not reach, or that is not contiguous for it.
    fn address(&self, start: NonNull<u8>, len_bytes: usize) -> Option<u64>;

    /// The longest piece that one address describes, `usize::MAX` under an identity mapping, the page size where each
    /// page may lie elsewhere. No mapping crosses a multiple of it.
    fn contiguous_len_max(&self) -> usize;
}

/// The identity: what the driver lends is what the device sees.
#[derive(Debug)]
pub struct Direct<M> {
    memory: M,
    counters: Counters,
}

impl<M: DirectMemory> Direct<M> {
    /// Operations on `memory`.
    pub fn new(memory: M) -> Self {
        Self { memory, counters: Counters::default() }
    }
}

impl<M: DirectMemory> DmaOps for Direct<M> {
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        self.memory.allocate(len_bytes).ok_or_else(|| {
            self.counters.exhausted();
            DmaError::Exhausted { wanted_bytes: len_bytes, pool_bytes: 0 }
        })
    }

    fn free(&self, memory: DmaMemory) {
        self.memory.free(memory);
    }

    #[inline]
    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError> {
        let len_max_bytes = self.mapping_len_max();
        if len_bytes > len_max_bytes {
            return Err(DmaError::TooLong { wanted_bytes: len_bytes, len_max_bytes });
        }
        let address = self.memory.address(start, len_bytes).ok_or(DmaError::Unmappable)?;
        self.counters.mapped(start, len_bytes);
        Ok(Mapped { address, len_bytes, start, direction, copy: None })
    }

    #[inline]
    unsafe fn unmap(&self, mapped: Mapped, _written_bytes: usize) {
        self.counters.unmapped(mapped.start);
    }

    fn mapping_len_max(&self) -> usize {
        self.memory.contiguous_len_max()
    }

    fn boundary(&self) -> Option<usize> {
        let len_max = self.memory.contiguous_len_max();
        (len_max != usize::MAX).then_some(len_max)
    }

    fn counts(&self) -> DmaCounts {
        self.counters.read()
    }
}
