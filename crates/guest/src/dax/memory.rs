//! How a window's bytes are loaded and stored.
//!
//! The memory is shared with the host, with other guests and between threads, all of whom may store at any time. No
//! reference is ever made into it: bytes are copied by address ([`shared_copy`]), and what is read while another stores
//! is any mixture of both, as with a file.

#![expect(unsafe_code, reason = "copies between a window and ordinary memory go by address")]

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{Errno, shared_copy};

/// A window as this system reaches it.
///
/// What is not mapped must not be touched: callers hold a [`Pin`](super::Pin).
pub trait WindowMemory: Send + Sync {
    /// In bytes; the same for ever.
    fn len_bytes(&self) -> u64;

    /// The address of the first byte, a multiple of [`RANGE_LEN`](super::RANGE_LEN).
    fn start(&self) -> NonNull<u8>;

    /// Copies from `offset`, in bytes. Errors: EFAULT where there is no page behind it, the file having been made
    /// shorter.
    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Copies to `offset`, in bytes. Errors: as [`Self::load`].
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Stores at `offset`, in bytes, what is there, whatever others store meanwhile: a hole of the file becomes a page.
    /// Errors: as [`Self::load`].
    fn touch(&self, offset: u64) -> Result<(), Errno>;

    /// Has the first store to each page of `len_bytes` at `offset` wait, from now on, until the page's place on the
    /// storage is durable (Linux: MAP_SYNC). False where the memory cannot, or the file is on no such storage.
    fn make_synchronous(&self, offset: u64, len_bytes: u64) -> bool {
        let _ = (offset, len_bytes);
        false
    }
}

/// A window in a kernel: device memory that is mapped for good, whose loads and stores do not fail.
pub struct MappedWindow {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the fields do not change, and no reference into the memory is made; concurrent accesses by address are no
// data race: they are atomic, byte by byte.
unsafe impl Send for MappedWindow {}
// SAFETY: as above.
unsafe impl Sync for MappedWindow {}

impl MappedWindow {
    /// Takes `len_bytes` of the window from `start` on.
    ///
    /// # Safety
    ///
    /// The memory is mapped for reading and writing for as long as this lives, and holds no Rust value.
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize) -> Self {
        Self { start, len_bytes }
    }

    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::FAULT)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len_bytes) {
            return Err(Errno::FAULT);
        }
        // SAFETY: the offset lies within the memory that `new` was given.
        Ok(unsafe { self.start.as_ptr().add(offset) })
    }
}

impl WindowMemory for MappedWindow {
    fn len_bytes(&self) -> u64 {
        self.len_bytes as u64
    }

    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let from = self.at(offset, bytes.len())?;
        // SAFETY:
        // 1. `at` has checked that the source lies within the memory, which is mapped as `new` demands.
        // 2. `bytes` is no part of it: no Rust value lies in the window. All accesses there are those of `shared_copy`,
        //    atomic, or the host's.
        unsafe { shared_copy::load(from, bytes) };
        Ok(())
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: as in `load`, the other way round.
        unsafe { shared_copy::store(to, bytes) };
        Ok(())
    }

    fn touch(&self, offset: u64) -> Result<(), Errno> {
        let at = self.at(offset, 1)?;
        // SAFETY: as in `load`; a byte is aligned anywhere, and what others do to it is atomic or, as with copies, any
        // mixture.
        let byte = unsafe { AtomicU8::from_ptr(at) };
        // An exchange, since what adds nothing may be compiled to a load.
        let mut seen = byte.load(Ordering::Relaxed);
        while let Err(other) = byte.compare_exchange_weak(seen, seen, Ordering::Relaxed, Ordering::Relaxed) {
            seen = other;
        }
        Ok(())
    }
}
