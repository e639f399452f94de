//! Memory for buffers, from the heap of the test.

#![expect(unsafe_code, reason = "buffers shared with a device are made of raw memory")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
};

use transom_guest::dma::{Direction, DmaError, DmaMemory, DmaOps, Mapped};

/// The device is in the same process, and accesses all memory in place.
pub(crate) struct Heap;

impl DmaOps for Heap {
    fn allocate(&self, len_bytes: usize) -> Result<DmaMemory, DmaError> {
        let layout = layout(len_bytes);
        // SAFETY: the layout's size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("the test has memory");
        // SAFETY: just allocated, aligned to 4096, known to nobody else, freed only by `free`.
        Ok(unsafe { DmaMemory::new(start, len_bytes, start.as_ptr().addr() as u64) })
    }

    fn free(&self, memory: DmaMemory) {
        // SAFETY: `allocate` made it with this layout, and `memory` was its only owner.
        unsafe { dealloc(memory.start().as_ptr(), layout(memory.len())) }
    }

    unsafe fn map(&self, start: NonNull<u8>, len_bytes: usize, direction: Direction) -> Result<Mapped, DmaError> {
        Ok(Mapped { address: start.as_ptr().addr() as u64, start, len_bytes, direction, copy: None })
    }

    unsafe fn unmap(&self, _: Mapped, _: usize) {}

    fn mapping_len_max(&self) -> usize {
        usize::MAX
    }
}

fn layout(len_bytes: usize) -> Layout {
    Layout::from_size_align(len_bytes.max(1), 4096).expect("the length is that of a buffer")
}
