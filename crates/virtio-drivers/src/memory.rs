//! A kernel's [`Hal`] as DMA operations.

#![expect(unsafe_code, reason = "memory is lent to a device by address")]

use core::{fmt, marker::PhantomData, ptr::NonNull};

use transom_guest::dma::{Direction, DmaError, DmaMemory, DmaOps, Mapped};
use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE};

/// The DMA operations of a kernel that has a [`Hal`].
///
/// `Hal::share` cannot fail, and describes a buffer by one address: a kernel whose memory is not contiguous for the
/// device, or that copies through a pool, limits the length by [`Self::with_mapping_len_max`].
///
/// Room for replies is shared in both directions. A `Hal` that copies then begins with the caller's bytes, so that a
/// short reply does not fill the rest of the room with whatever the pool contained before. It copies all of the room
/// back, so only room that nobody else writes to is shared: slices and lists to which others may write go through
/// memory from `Hal::dma_alloc`.
pub struct HalMemory<H> {
    mapping_len_max: usize,
    hal: PhantomData<fn() -> H>,
}

impl<H: Hal> HalMemory<H> {
    /// Creates operations that share buffers of any length.
    pub fn new() -> Self {
        Self { mapping_len_max: usize::MAX, hal: PhantomData }
    }

    /// Limits the length of a shared buffer, in bytes. No buffer crosses a multiple of it, so if neighbouring pages may
    /// be anywhere, the limit is the page size.
    #[must_use]
    pub fn with_mapping_len_max(self, len_bytes: usize) -> Self {
        Self { mapping_len_max: len_bytes, ..self }
    }
}

impl<H: Hal> Default for HalMemory<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H> fmt::Debug for HalMemory<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HalMemory").field("mapping_len_max", &self.mapping_len_max).finish()
    }
}

impl<H: Hal> DmaOps for HalMemory<H> {
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        let (address, start) = H::dma_alloc(pages(len_bytes), BufferDirection::Both);
        // By this, virtio-drivers recognises that memory is short.
        if address == 0 {
            return Err(DmaError::Exhausted { wanted_bytes: len_bytes, pool_bytes: 0 });
        }
        // SAFETY: `dma_alloc` returns zeroed pages, aligned to `PAGE_SIZE`, which nobody else uses until `dma_dealloc`.
        Ok(unsafe { DmaMemory::new(start, len_bytes, address) })
    }

    fn free(&self, memory: DmaMemory) {
        // SAFETY: `allocate` had the pages from this `Hal`, as many of them, and `memory` was their only owner. What
        // the call returns would be an error of the kernel's own allocator, about which nothing can be done here.
        let _ = unsafe { H::dma_dealloc(memory.address(), memory.start(), pages(memory.len())) };
    }

    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError> {
        if len_bytes > self.mapping_len_max {
            return Err(DmaError::TooLong { wanted_bytes: len_bytes, len_max_bytes: self.mapping_len_max });
        }
        // virtio-drivers never shares an empty buffer.
        let address = match len_bytes {
            0 => 0,
            // SAFETY: the caller lends these bytes and leaves them alone until `unmap`; they are not empty.
            _ => unsafe { H::share(NonNull::slice_from_raw_parts(start, len_bytes), hal_direction(direction)) },
        };
        Ok(Mapped { address, len_bytes, start, direction, copy: None })
    }

    unsafe fn unmap(&self, mapped: Mapped, _written_bytes: usize) {
        let Mapped { address, len_bytes, start, direction, .. } = mapped;
        if len_bytes != 0 {
            let buffer = NonNull::slice_from_raw_parts(start, len_bytes);
            // SAFETY: `map` shared this buffer at this address in this direction; the caller says that the memory is
            // still lent.
            unsafe { H::unshare(address, buffer, hal_direction(direction)) };
        }
    }

    /// Nothing says whether a `Hal` copies what it shares.
    fn is_in_place(&self, _: NonNull<u8>, _: usize) -> bool {
        false
    }

    fn mapping_len_max(&self) -> usize {
        self.mapping_len_max
    }

    fn boundary(&self) -> Option<usize> {
        (self.mapping_len_max != usize::MAX).then_some(self.mapping_len_max)
    }
}

/// Returns the pages that `len_bytes` need, at least one.
fn pages(len_bytes: usize) -> usize {
    len_bytes.max(1).div_ceil(PAGE_SIZE)
}

fn hal_direction(direction: Direction) -> BufferDirection {
    match direction {
        Direction::ToDevice => BufferDirection::DriverToDevice,
        Direction::FromDevice => BufferDirection::Both,
    }
}
