//! Memory for the device, and the device's memory, by Hermit's page tables.

#![allow(unsafe_code, reason = "maps registers and windows of devices, and allocates memory for devices")]

use core::alloc::{Allocator, Layout};
use core::ptr::NonNull;

use align_address::Align;
use memory_addresses::{PhysAddr, VirtAddr};
use transom_guest::dax::{MappedWindow, RANGE_LEN};
use transom_guest::dma::{DirectMemory, DmaMemory};
use transom_guest::transport::{ShmRegion, TransportError, VolatileRegisters};

use crate::arch::mm::paging::{self, BasePageSize, LargePageSize, PageSize, PageTableEntryFlags, virtual_to_physical};
use crate::arch::mm::virtualmem;
use crate::mm::device_alloc::DeviceAlloc;

pub(super) const PAGE_LEN: usize = BasePageSize::SIZE as usize;

/// Memory of the kernel, whose pages may each be anywhere for the device.
pub(super) struct Paged;

impl DirectMemory for Paged {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let start = DeviceAlloc.allocate_zeroed(layout(len_bytes)?).ok()?.cast();
        // SAFETY: the memory was just allocated, has no other user, and starts at a page boundary. It is contiguous for
        // the device, whose address of it is that of its first page.
        Some(unsafe { DmaMemory::new(start, len_bytes, physical(start)?) })
    }

    fn free(&self, memory: DmaMemory) {
        if let Some(layout) = layout(memory.len()) {
            // SAFETY: `allocate` used this layout, and `memory` was its only owner.
            unsafe { DeviceAlloc.deallocate(memory.start(), layout) };
        }
    }

    fn address(&self, start: NonNull<u8>, _len_bytes: usize) -> Option<u64> {
        physical(start)
    }

    fn contiguous_len_max(&self) -> usize {
        PAGE_LEN
    }
}

fn layout(len_bytes: usize) -> Option<Layout> {
    Layout::from_size_align(len_bytes.max(1), PAGE_LEN).ok()
}

/// Returns the physical address of mapped memory.
pub(super) fn physical(start: NonNull<u8>) -> Option<u64> {
    virtual_to_physical(VirtAddr::from_ptr(start.as_ptr())).map(PhysAddr::as_u64)
}

/// Maps a device's registers for good.
pub(super) fn registers(address: u64, len_bytes: u64) -> Result<VolatileRegisters, TransportError> {
    let first = address.align_down(BasePageSize::SIZE);
    let len = (address + len_bytes).align_up(BasePageSize::SIZE) - first;
    let pages = virtualmem::allocate(len as usize).map_err(|_| NO_ADDRESSES)?;
    let count = len as usize / PAGE_LEN;
    paging::map::<BasePageSize>(pages, PhysAddr::new(first), count, device_flags());
    let start = (pages + (address - first)).as_mut_ptr();
    let start = NonNull::new(start).filter(|_| address.is_multiple_of(4)).ok_or(NO_ADDRESSES)?;
    // SAFETY: the registers were just mapped at addresses that nobody else has, begin at a multiple of 4, and stay.
    Ok(unsafe { VolatileRegisters::new(start, len_bytes as usize) })
}

/// Maps a window for good, by pages of 2 MiB.
pub(super) fn window(region: ShmRegion) -> Result<MappedWindow, TransportError> {
    let ShmRegion { address, len_bytes } = region;
    if !address.is_multiple_of(RANGE_LEN) || !len_bytes.is_multiple_of(RANGE_LEN) {
        return Err(TransportError::Broken("the window is not one of 2 MiB units"));
    }
    let len = len_bytes as usize;
    let pages = virtualmem::allocate_aligned(len, RANGE_LEN as usize).map_err(|_| NO_ADDRESSES)?;
    let count = len / LargePageSize::SIZE as usize;
    paging::map::<LargePageSize>(pages, PhysAddr::new(address), count, memory_flags(true));
    let start = NonNull::new(pages.as_mut_ptr()).ok_or(NO_ADDRESSES)?;
    // SAFETY: the window was just mapped at addresses that nobody else has, and stays.
    Ok(unsafe { MappedWindow::new(start, len) })
}

const NO_ADDRESSES: TransportError = TransportError::Lacks("addresses for its registers");

fn device_flags() -> PageTableEntryFlags {
    let mut flags = memory_flags(true);
    flags.device();
    flags
}

/// Returns the flags of memory that is not executed.
pub(super) fn memory_flags(is_writable: bool) -> PageTableEntryFlags {
    let mut flags = PageTableEntryFlags::empty();
    flags.normal().execute_disable();
    if is_writable {
        flags.writable();
    }
    flags
}
