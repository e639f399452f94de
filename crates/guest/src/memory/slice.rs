//! Memory by address, which others may change at the same time.

#![expect(unsafe_code, reason = "memory that others change is accessed by address")]

use core::{marker::PhantomData, ops::Range, ptr::NonNull, slice};

use crate::shared_copy;

/// Bytes to read, by address.
#[derive(Debug, Clone, Copy)]
pub struct IoSlice<'a> {
    start: NonNull<u8>,
    len_bytes: usize,
    /// Nobody changes the bytes while this exists.
    is_stable: bool,
    _bytes: PhantomData<&'a [u8]>,
}

// SAFETY: the bytes belong to no thread, and are only read: as a slice if nobody changes them, otherwise atomically.
unsafe impl Send for IoSlice<'_> {}
// SAFETY: as above.
unsafe impl Sync for IoSlice<'_> {}

impl<'a> IoSlice<'a> {
    /// Borrows a slice.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { start: NonNull::from(bytes).cast(), len_bytes: bytes.len(), is_stable: true, _bytes: PhantomData }
    }

    /// Describes bytes that others may change, such as pinned pages of a process.
    ///
    /// # Safety
    ///
    /// For `'a`, `start..start + len_bytes` is mapped readable, and is changed only from outside Rust or atomically,
    /// byte by byte.
    pub unsafe fn shared(start: NonNull<u8>, len_bytes: usize) -> Self {
        Self { start, len_bytes, is_stable: false, _bytes: PhantomData }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }

    /// Returns whether nobody changes the bytes during the borrow.
    pub(crate) fn is_stable(&self) -> bool {
        self.is_stable
    }

    /// Returns the bytes of `range`, as far as they exist.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let (at, len_bytes) = within(range, self.len_bytes);
        // SAFETY: `at` is at most the length.
        Self { start: unsafe { self.start.add(at) }, len_bytes, ..*self }
    }

    /// Copies as many bytes as both have to the beginning of `to`, and returns their number.
    pub fn copy_to(&self, to: IoSliceMut<'_>) -> usize {
        let len_bytes = self.len_bytes.min(to.len_bytes);
        // SAFETY:
        // 1. Both have `len_bytes`, mapped as `new` or `shared` demand.
        // 2. A stable slice is borrowed: nobody changes it, and `to`, which is written, is no part of it.
        // 3. Other bytes are accessed by others only atomically or from outside Rust.
        unsafe {
            if self.is_stable {
                shared_copy::store(to.start.as_ptr(), slice::from_raw_parts(self.start.as_ptr(), len_bytes));
            } else {
                shared_copy::copy(to.start.as_ptr(), self.start.as_ptr(), len_bytes);
            }
        }
        len_bytes
    }
}

/// Room to write to, by address.
///
/// It may be copied, as a shared reference to atomic bytes may: two that write the same bytes leave a mixture. What a
/// device cannot write in place is therefore copied to it byte by byte, and never more than has arrived.
#[derive(Debug, Clone, Copy)]
pub struct IoSliceMut<'a> {
    start: NonNull<u8>,
    len_bytes: usize,
    /// Nobody else accesses the bytes, not even through a copy of this.
    is_stable: bool,
    _bytes: PhantomData<&'a mut [u8]>,
}

// SAFETY: the bytes belong to no thread, and every access is atomic, byte by byte.
unsafe impl Send for IoSliceMut<'_> {}
// SAFETY: as above.
unsafe impl Sync for IoSliceMut<'_> {}

impl<'a> IoSliceMut<'a> {
    /// Borrows a slice.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Self { is_stable: false, ..Self::alone(bytes) }
    }

    /// Borrows a slice for one operation: the caller makes no copy of this.
    pub(crate) fn alone(bytes: &'a mut [u8]) -> Self {
        let len_bytes = bytes.len();
        Self { start: NonNull::from(bytes).cast(), len_bytes, is_stable: true, _bytes: PhantomData }
    }

    /// Describes bytes that others may access, such as pinned pages of a process.
    ///
    /// # Safety
    ///
    /// For `'a`, `start..start + len_bytes` is mapped writable and readable, no Rust reference points there, and others
    /// access it only from outside Rust or atomically, byte by byte.
    pub unsafe fn shared(start: NonNull<u8>, len_bytes: usize) -> Self {
        Self { start, len_bytes, is_stable: false, _bytes: PhantomData }
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len_bytes
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the address of the first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns whether nobody else accesses the bytes during the borrow.
    pub(crate) fn is_stable(&self) -> bool {
        self.is_stable
    }

    /// Returns the bytes of `range`, as far as they exist.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let (at, len_bytes) = within(range, self.len_bytes);
        // SAFETY: `at` is at most the length.
        Self { start: unsafe { self.start.add(at) }, len_bytes, ..*self }
    }

    /// Returns the bytes, to read them.
    pub fn as_slice(&self) -> IoSlice<'a> {
        IoSlice { start: self.start, len_bytes: self.len_bytes, is_stable: false, _bytes: PhantomData }
    }
}

/// Returns begin and length of a range, cut at `len_bytes`.
fn within(range: Range<usize>, len_bytes: usize) -> (usize, usize) {
    let end = range.end.min(len_bytes);
    let at = range.start.min(end);
    (at, end - at)
}
