//! Memory: a heap behind the kernel, which the device sees at the same addresses.

#![expect(unsafe_code, reason = "memory that nobody else has is handed to the allocator")]

use alloc::alloc::{alloc_zeroed, dealloc};
use core::{alloc::Layout, ptr::NonNull};

use linked_list_allocator::LockedHeap;
use transom_guest::{
    dax::MappedWindow,
    dma::{DirectMemory, DmaMemory},
    transport::ShmRegion,
};

#[global_allocator]
static HEAP: LockedHeap = LockedHeap::empty();

/// In bytes; the machine has to have so much above 2 MiB.
const HEAP_LEN: usize = 96 << 20;

/// What the device is lent begins at a multiple of this.
const PAGE_LEN: usize = 4096;

unsafe extern "C" {
    /// The linker script's end of the kernel.
    static mut heap_start: u8;
}

/// Makes the heap usable; once, before anything is allocated.
pub(super) fn begin() {
    // SAFETY: nothing but the heap lies behind the kernel: the loader's notes and tables are below it, and the machine
    // has more memory than this. It is called once.
    unsafe { HEAP.lock().init(&raw mut heap_start, HEAP_LEN) };
}

/// A device's window, which is mapped where it is; what lies beyond 512 GiB is left out.
pub(super) fn window(region: ShmRegion) -> MappedWindow {
    const MAPPED_LEN: u64 = 512 << 30;
    let len_bytes = region.len_bytes.min(MAPPED_LEN.saturating_sub(region.address));
    let start = NonNull::new(region.address as *mut u8).unwrap_or(NonNull::dangling());
    let len_bytes = if region.address == 0 { 0 } else { len_bytes };
    // SAFETY: all addresses below 512 GiB are mapped for good, and a device's region is no memory of the kernel.
    unsafe { MappedWindow::new(start, len_bytes as usize) }
}

/// All memory is where the device finds it.
pub(super) struct Identity;

impl DirectMemory for Identity {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let layout = Layout::from_size_align(len_bytes.max(1), PAGE_LEN).ok()?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: it was just allocated, for this alone, and starts at a page.
        Some(unsafe { DmaMemory::new(start, len_bytes, start.as_ptr() as u64) })
    }

    fn free(&self, memory: DmaMemory) {
        let layout = Layout::from_size_align(memory.len().max(1), PAGE_LEN);
        if let Ok(layout) = layout {
            // SAFETY: `allocate` made it with this layout, and its only description is given back.
            unsafe { dealloc(memory.start().as_ptr(), layout) };
        }
    }

    fn address(&self, start: NonNull<u8>, _len_bytes: usize) -> Option<u64> {
        Some(start.as_ptr() as u64)
    }

    fn contiguous_len_max(&self) -> usize {
        usize::MAX
    }
}
