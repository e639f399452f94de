//! Memory: a heap after the kernel, which devices access at the same addresses.

#![expect(unsafe_code, reason = "gives unused memory to the allocator")]

use alloc::{
    alloc::{alloc_zeroed, dealloc},
    sync::Arc,
};
use core::{
    alloc::{GlobalAlloc, Layout},
    ptr::{self, NonNull},
};

use linked_list_allocator::Heap;
use transom_guest::{
    dma::{DirectMemory, DmaMemory},
    transport::{ShmRegion, TransportError, VolatileRegisters},
};
use transom_versions::Region;

use super::{arch, lock::Lock};

#[global_allocator]
static HEAP: Allocator = Allocator(Lock::new(Heap::empty()));

/// The heap, for all processors.
struct Allocator(Lock<Heap>);

// SAFETY: the heap returns memory that it owns and nobody else has, until it is freed; its lock excludes others.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.lock().allocate_first_fit(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        if let Some(start) = NonNull::new(start) {
            // SAFETY: the caller guarantees that `alloc` has returned it for this layout.
            unsafe { self.0.lock().deallocate(start, layout) };
        }
    }
}

/// Alignment of memory for devices.
const PAGE_LEN: usize = 4096;

unsafe extern "C" {
    /// The end of the kernel, defined by the linker script.
    static mut heap_start: u8;
}

/// Initialises the heap. Call this once, before any allocation.
pub(super) fn begin() {
    let len_bytes = heap_len();
    // SAFETY: only the heap is after the kernel: the loader's notes and tables are below it, and the machine has this
    // much memory. `begin` is called once.
    unsafe { HEAP.0.lock().init(&raw mut heap_start, len_bytes) };
}

/// Returns the length of the heap, in bytes.
pub(super) fn heap_len() -> usize {
    arch::heap_len((&raw const heap_start).addr())
}

/// Returns the number of bytes of the heap that are in use.
pub(super) fn used() -> usize {
    HEAP.0.lock().used()
}

/// Returns a device's region as words, which the host writes.
pub(super) fn words(region: ShmRegion) -> Result<Region, TransportError> {
    let is_mapped = region.address.checked_add(region.len_bytes).is_some_and(|end| end <= arch::IDENTITY_LEN);
    let start = NonNull::new(region.address as *mut u8).filter(|_| is_mapped);
    let start = start.ok_or(TransportError::Broken("a region is at an address that cannot be used"))?;
    // SAFETY: addresses below `IDENTITY_LEN` are mapped permanently, a device's region is not memory of the kernel,
    // which makes no other reference to it, and the host writes whole words.
    unsafe { Region::new(start, region.len_bytes as usize) }
        .map_err(|_| TransportError::Broken("a region is at an odd address"))
}

/// Returns the registers of a device at a physical address, if they are mapped.
pub(super) fn registers(address: u64, len_bytes: u64) -> Result<VolatileRegisters, TransportError> {
    let is_mapped = address.checked_add(len_bytes).is_some_and(|end| end <= arch::IDENTITY_LEN);
    let start = NonNull::new(address as *mut u8).filter(|start| is_mapped && start.addr().get().is_multiple_of(4));
    let start = start.ok_or(TransportError::Broken("its registers are at an address that cannot be used"))?;
    // SAFETY: the addresses are mapped permanently and uncached, or nobody caches what a device has there; they belong
    // to a device and not to the kernel's memory, and no reference points there.
    Ok(unsafe { VolatileRegisters::new(start, len_bytes as usize) })
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

/// Memory for devices that lives as long as this.
struct Owned(DmaMemory);

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: as in `pool`; whoever had the memory has dropped it.
        Identity.free(unsafe { DmaMemory::new(self.0.start(), self.0.len(), self.0.address()) });
    }
}

/// Allocates memory that only the operations of one device use. Returns it with its owner.
pub(super) fn pool(len_bytes: usize) -> Option<(DmaMemory, Arc<dyn Send + Sync>)> {
    let owned = Owned(Identity.allocate(len_bytes)?);
    // SAFETY: the owner itself accesses nothing, and outlives this value.
    let pool = unsafe { DmaMemory::new(owned.0.start(), len_bytes, owned.0.address()) };
    Some((pool, Arc::new(owned)))
}
