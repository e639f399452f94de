//! Memory for a driver and a fake device in one process, both of which see it at the same address.

#![expect(unsafe_code, reason = "memory shared with a device is made of raw memory")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::NonNull,
    sync::atomic::{AtomicU64, Ordering},
};

use transom_guest::dma::{DirectMemory, DmaMemory};

/// The heap. Fails an allocation when told to.
#[derive(Debug)]
pub(crate) struct Heap {
    /// Allocations until one fails.
    until_failure: AtomicU64,
    live: AtomicU64,
}

impl Heap {
    pub(crate) fn new() -> Self {
        Self { until_failure: AtomicU64::new(u64::MAX), live: AtomicU64::new(0) }
    }

    /// Fails the `nth` allocation from now on and all after it; 0 is the next one.
    pub(crate) fn failing(nth: u64) -> Self {
        Self { until_failure: AtomicU64::new(nth), ..Self::new() }
    }
}

impl DirectMemory for &'static Heap {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let left = self.until_failure.load(Ordering::SeqCst);
        self.until_failure.store(left.checked_sub(1)?, Ordering::SeqCst);
        self.live.fetch_add(1, Ordering::SeqCst);
        Some(allocate(len_bytes))
    }

    fn free(&self, memory: DmaMemory) {
        self.live.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: `allocate` made it with this layout, and `memory` was its only owner.
        unsafe { dealloc(memory.start().as_ptr(), layout(memory.len())) }
    }

    fn address(&self, start: NonNull<u8>, _: usize) -> Option<u64> {
        Some(start.addr().get() as u64)
    }

    fn contiguous_len_max(&self) -> usize {
        usize::MAX
    }
}

impl Heap {
    /// Returns the number of allocations that were not freed.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::SeqCst)
    }
}

/// Allocates zeroed memory, aligned to 4096, whose device address is its own address.
pub(crate) fn allocate(len_bytes: usize) -> DmaMemory {
    // SAFETY: the layout's size is not 0.
    let start = NonNull::new(unsafe { alloc_zeroed(layout(len_bytes)) }).expect("the test has memory");
    // SAFETY: just allocated, aligned to 4096, known to nobody else, freed only by its allocator or never.
    unsafe { DmaMemory::new(start, len_bytes, start.addr().get() as u64) }
}

/// Returns memory that the device finds at another address than the driver; `start` is the driver's alone.
#[allow(dead_code, reason = "for the tests of the device")]
pub(crate) fn view(start: NonNull<u8>, len_bytes: usize, address: u64) -> DmaMemory {
    // SAFETY: the memory is one that `allocate` has returned and that was given up for this.
    unsafe { DmaMemory::new(start, len_bytes, address) }
}

fn layout(len_bytes: usize) -> Layout {
    Layout::from_size_align(len_bytes.max(1), 4096).expect("the length is that of a buffer")
}

/// What the driver has told the device of: the fake's way to look at it.
pub(crate) fn at(address: u64, len_bytes: usize) -> DmaMemory {
    let start =
        NonNull::new(std::ptr::with_exposed_provenance_mut(address as usize)).expect("an address of the driver");
    // SAFETY: the driver says that it has lent `len_bytes` there, and takes them back only after the fake has used them
    // or was reset; that it keeps to it is what the tests show. Access is by bytes or aligned.
    unsafe { DmaMemory::new(start, len_bytes, address) }
}
