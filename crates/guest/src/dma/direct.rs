//! Memory that the device accesses in place: no copy, and an address that the platform computes.

#![expect(unsafe_code, reason = "a mapping is made of a pointer, which the caller vouches for")]

use core::ptr::NonNull;

use super::{Direction, DmaCounts, DmaError, DmaMemory, DmaOps, Mapped, counters::Counters};

/// What a system provides about its own memory.
pub trait DirectMemory: Send + Sync {
    /// Allocates physically contiguous, zeroed memory whose device address is a multiple of 4096. Returns `None` if
    /// memory is short.
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory>;

    /// Frees memory from [`Self::allocate`].
    fn free(&self, memory: DmaMemory);

    /// Returns the device's address of `len_bytes` at `start`, at most [`Self::contiguous_len_max`]. Returns `None` if
    /// the device cannot reach the memory, or if it is not contiguous for the device.
    fn address(&self, start: NonNull<u8>, len_bytes: usize) -> Option<u64>;

    /// Returns the longest piece that one address describes: `usize::MAX` under an identity mapping, the page size if
    /// each page may lie elsewhere. No mapping crosses a multiple of it.
    fn contiguous_len_max(&self) -> usize;
}

/// Maps memory in place: the device sees what the driver lends.
#[derive(Debug)]
pub struct Direct<M> {
    memory: M,
    counters: Counters,
}

impl<M: DirectMemory> Direct<M> {
    /// Creates operations on `memory`.
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
