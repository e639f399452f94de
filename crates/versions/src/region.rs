//! Mapped memory as words.

#![expect(unsafe_code, reason = "memory that other processes write becomes a slice of atomics here, and nowhere else")]

use core::{ptr::NonNull, slice};

use crate::{AtomicU64, TableError, layout::WORD_LEN};

/// Mapped memory that other processes write, as words that are only accessed atomically.
#[derive(Debug)]
pub struct Region {
    start: NonNull<AtomicU64>,
    len_words: usize,
}

// SAFETY: the memory is accessed through shared references to atomics only, which any thread may use.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Creates a region of `len_bytes` at `start`; bytes after the last whole word are ignored.
    ///
    /// # Safety
    ///
    /// For as long as this value lives, the memory is mapped for reading, no Rust reference to it exists but those that
    /// this value gives out, and whoever writes it does so by atomic accesses of whole words. If it is mapped for
    /// reading only, it is not passed to a [`Writer`](crate::Writer).
    ///
    /// # Errors
    /// If `start` is not a multiple of 8.
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize) -> Result<Self, TableError> {
        let start = start.cast::<AtomicU64>();
        if !start.is_aligned() {
            return Err(TableError::Misaligned);
        }
        Ok(Self { start, len_words: len_bytes / WORD_LEN })
    }
}

impl AsRef<[AtomicU64]> for Region {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        // SAFETY:
        // 1. The address is aligned, and the memory is mapped while `self` lives: checked by and promised to `new`.
        // 2. Every value of 8 bytes is a valid `AtomicU64`, and atomics may change while they are borrowed.
        // 3. The length is that of one mapping, which never exceeds `isize::MAX` bytes.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len_words) }
    }
}
