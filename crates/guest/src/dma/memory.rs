//! Memory that a driver and its device access at the same time: the one place where such bytes are accessed.
//!
//! The other side may be another process, or a device that violates the protocol, so the bytes may change at any
//! moment. They are only ever copied, or loaded and stored atomically; no reference into them is handed out.

#![expect(unsafe_code, reason = "memory shared with a device is reached through pointers")]

use core::{
    ops::Range,
    ptr::NonNull,
    sync::atomic::{AtomicU16, AtomicU32, Ordering},
};

use crate::{
    memory::{IoSlice, IoSliceMut},
    shared_copy,
};

/// Memory that the device can access too.
#[derive(Debug)]
pub struct DmaMemory {
    start: NonNull<u8>,
    len_bytes: usize,
    address: u64,
}

// SAFETY: the memory belongs to no thread, and every access is atomic; copies are atomic byte by byte.
unsafe impl Send for DmaMemory {}
// SAFETY: as for Send; if two threads write at the same time, each byte is from one of them, as with the device.
unsafe impl Sync for DmaMemory {}

impl DmaMemory {
    /// Describes memory that the device finds at `address`.
    ///
    /// # Safety
    ///
    /// `start` is a multiple of 8, and `start..start + len_bytes` is mapped readable and writable, and used for nothing
    /// else, until the value is returned to the operations that made it.
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize, address: u64) -> Self {
        Self { start, len_bytes, address }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Returns the device's address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the address in this address space.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns `len_bytes` of it starting at `offset`, for operations that divide a pool.
    ///
    /// # Panics
    /// If they do not lie within the memory.
    pub(super) fn part(&self, offset: usize, len_bytes: usize) -> Self {
        let start =
            NonNull::new(self.at(offset, len_bytes)).expect("what lies within memory is not at the null pointer");
        Self { start, len_bytes, address: self.address + offset as u64 }
    }

    /// Copies bytes starting at `offset`. Panics if they do not lie within the memory.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.at(offset, bytes.len());
        // SAFETY:
        // 1. `from` and the `bytes.len()` bytes from there lie within the memory: checked by `at`.
        // 2. `bytes` is not part of it: no reference into the memory exists.
        // 3. Concurrent writers are the device, or go through this type, whose accesses are atomic.
        unsafe { shared_copy::load(from, bytes) }
    }

    /// Copies `bytes` to `offset`. Panics if they do not lie within the memory.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.at(offset, bytes.len());
        // SAFETY: as in `read`, in the other direction.
        unsafe { shared_copy::store(to, bytes) }
    }

    /// Returns the bytes of `range`, to copy them without a detour. Panics if they do not lie within the memory.
    pub(crate) fn slice(&self, range: Range<usize>) -> IoSlice<'_> {
        self.slice_mut(range).as_slice()
    }

    /// Returns the bytes of `range`, to copy to them. Panics if they do not lie within the memory.
    pub(crate) fn slice_mut(&self, range: Range<usize>) -> IoSliceMut<'_> {
        let start = self.part(range.start, range.len()).start;
        // SAFETY: `part` has checked the range; the memory outlives the borrow of `self`, and concurrent accesses are
        // those of `read`.
        unsafe { IoSliceMut::shared(start, range.len()) }
    }

    /// Sets `len_bytes` starting at `offset` to `value`. Panics if they do not lie within the memory.
    pub fn fill(&self, offset: usize, len_bytes: usize, value: u8) {
        let to = self.at(offset, len_bytes);
        // SAFETY: as in `write`.
        unsafe { shared_copy::fill(to, value, len_bytes) }
    }

    /// Copies `len_bytes` within this memory, or from `from` in another; the ranges may overlap. Panics if they do not
    /// lie within the memory.
    pub fn copy_from(&self, offset: usize, from: &Self, from_offset: usize, len_bytes: usize) {
        let (to, from) = (self.at(offset, len_bytes), from.at(from_offset, len_bytes));
        // SAFETY: as in `read` and `write`; overlap is allowed.
        unsafe { shared_copy::copy(to, from, len_bytes) }
    }

    /// Loads the 16 bits at `offset`, a multiple of 2, little endian.
    pub fn load_u16(&self, offset: usize, ordering: Ordering) -> u16 {
        u16::from_le(self.atomic_u16(offset).load(ordering))
    }

    /// Stores 16 bits at `offset`, a multiple of 2, little endian.
    pub fn store_u16(&self, offset: usize, value: u16, ordering: Ordering) {
        self.atomic_u16(offset).store(value.to_le(), ordering);
    }

    /// Loads the 32 bits at `offset`, a multiple of 4, little endian.
    pub fn load_u32(&self, offset: usize, ordering: Ordering) -> u32 {
        // SAFETY: within the memory and aligned: `at` and `is_aligned`; the memory outlives the borrow of `self`.
        let cell = unsafe { AtomicU32::from_ptr(is_aligned(self.at(offset, 4).cast())) };
        u32::from_le(cell.load(ordering))
    }

    fn atomic_u16(&self, offset: usize) -> &AtomicU16 {
        #[cfg(all(test, feature = "loom"))]
        model_step();
        // SAFETY: within the memory and aligned: `at` and `is_aligned`; the memory outlives the borrow of `self`.
        unsafe { AtomicU16::from_ptr(is_aligned(self.at(offset, 2).cast())) }
    }

    fn at(&self, offset: usize, len_bytes: usize) -> *mut u8 {
        let end = offset.checked_add(len_bytes);
        assert!(
            end.is_some_and(|end| end <= self.len_bytes),
            "{len_bytes} bytes at {offset} exceed a buffer of {}",
            self.len_bytes
        );
        self.start.as_ptr().wrapping_add(offset)
    }
}

/// A scheduling point of the model: at indices and flags that both sides access, one side may overtake the other.
#[cfg(all(test, feature = "loom"))]
fn model_step() {
    loom::lazy_static! {
        static ref STEP: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(0);
    }
    STEP.fetch_add(1, Ordering::SeqCst);
}

fn is_aligned<T>(pointer: *mut T) -> *mut T {
    assert!(pointer.is_aligned(), "{pointer:p} is not aligned");
    pointer
}
