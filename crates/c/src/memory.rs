//! The memory of a kernel in C, by the functions of its [`table`].

#![expect(unsafe_code, reason = "calls functions of C, which return memory")]

use core::ptr::NonNull;

use transom_guest::dma::{DirectMemory, DmaMemory};

use crate::table::table;

/// Memory for devices begins at a multiple of this.
const PAGE_LEN: usize = 4096;

/// The kernel's memory, as devices reach it.
pub(crate) struct Memory;

impl DirectMemory for Memory {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let table = table();
        let mut address = 0;
        // SAFETY: a function of the table, with its context, and room for the address.
        let start = unsafe { table.dma_alloc?(table.context, len_bytes, &raw mut address) };
        let start = NonNull::new(start.cast::<u8>()).filter(|start| start.addr().get().is_multiple_of(PAGE_LEN))?;
        // SAFETY: the function returns zeroed memory of this length, which nobody else uses until it is freed; its
        // alignment was just checked.
        Some(unsafe { DmaMemory::new(start, len_bytes, address) })
    }

    fn free(&self, memory: DmaMemory) {
        let table = table();
        if let Some(dma_free) = table.dma_free {
            // SAFETY: a function of the table, with its context, and memory that `allocate` had from the table.
            unsafe { dma_free(table.context, memory.start().as_ptr().cast(), memory.len(), memory.address()) };
        }
    }

    fn address(&self, start: NonNull<u8>, len_bytes: usize) -> Option<u64> {
        let table = table();
        // SAFETY: a function of the table, with its context; it does not access the memory.
        let address = unsafe { table.dma_address?(table.context, start.as_ptr().cast(), len_bytes) };
        (address != u64::MAX).then_some(address)
    }

    fn contiguous_len_max(&self) -> usize {
        match table().dma_contiguous_max {
            0 => usize::MAX,
            len_bytes => len_bytes,
        }
    }
}
