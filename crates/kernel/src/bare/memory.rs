//! Memory: a heap after the kernel, which devices access at the same addresses.

#![expect(unsafe_code, reason = "gives unused memory to the allocator")]

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

/// Length of the heap in bytes; the machine must have this much memory above 2 MiB.
const HEAP_LEN: usize = 96 << 20;

/// Alignment of memory for devices.
const PAGE_LEN: usize = 4096;

unsafe extern "C" {
    /// The end of the kernel, defined by the linker script.
    static mut heap_start: u8;
}

/// Initialises the heap. Call this once, before any allocation.
pub(super) fn begin() {
    // SAFETY: only the heap is after the kernel: the loader's notes and tables are below it, and the machine has more
    // memory than this. `begin` is called once.
    unsafe { HEAP.lock().init(&raw mut heap_start, HEAP_LEN) };
}

/// Returns a device's window, which is identity-mapped, without the part above 512 GiB.
pub(super) fn window(region: ShmRegion) -> MappedWindow {
    const MAPPED_LEN: u64 = 512 << 30;
    let len_bytes = region.len_bytes.min(MAPPED_LEN.saturating_sub(region.address));
    let start = NonNull::new(region.address as *mut u8).unwrap_or(NonNull::dangling());
    let len_bytes = if region.address == 0 { 0 } else { len_bytes };
    // SAFETY: all addresses below 512 GiB are mapped permanently, and a device's region is not memory of the kernel.
    unsafe { MappedWindow::new(start, len_bytes as usize) }
}

/// Memory that the device accesses at the CPU's addresses.
pub(super) struct Identity;

impl DirectMemory for Identity {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let layout = Layout::from_size_align(len_bytes.max(1), PAGE_LEN).ok()?;
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        // SAFETY: the memory was just allocated, has no other user, and starts at a page boundary.
        Some(unsafe { DmaMemory::new(start, len_bytes, start.as_ptr() as u64) })
    }

    fn free(&self, memory: DmaMemory) {
        let layout = Layout::from_size_align(memory.len().max(1), PAGE_LEN);
        if let Ok(layout) = layout {
            // SAFETY: `allocate` used this layout, and `memory` was its only owner.
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
