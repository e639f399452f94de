//! Loads and stores in the window.
//!
//! The memory is shared with the host, with other guests and between threads, all of which may store at any time. No
//! reference into it is ever created: bytes are copied by address ([`shared_copy`]), and a read during a store returns
//! any mixture of old and new bytes, as with a file.

#![expect(unsafe_code, reason = "copies between a window and ordinary memory go by address")]

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicU8, Ordering},
};

use crate::{
    Errno,
    memory::{IoSlice, IoSliceMut},
    shared_copy,
};

/// A window, as the system that the library runs in accesses it.
///
/// Only mapped ranges may be accessed, so callers hold a [`Pin`](super::Pin).
pub trait WindowMemory: Send + Sync {
    /// Returns the length in bytes, which never changes.
    fn len_bytes(&self) -> u64;

    /// Returns the address of the first byte, a multiple of [`RANGE_LEN`](super::RANGE_LEN).
    fn start(&self) -> NonNull<u8>;

    /// Copies bytes from `offset`. Errors: EFAULT if there is no page because the file was truncated.
    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno>;

    /// Copies bytes to `offset`. Errors: as for [`Self::load`].
    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno>;

    /// Copies from `offset` to memory by address. Errors: as for [`Self::load`].
    fn load_into(&self, offset: u64, to: IoSliceMut<'_>) -> Result<(), Errno> {
        if let Some(bytes) = self.bytes(offset, to.len()) {
            bytes.as_slice().copy_to(to);
            return Ok(());
        }
        let mut piece = [0; 512];
        for at in (0..to.len()).step_by(piece.len()) {
            let to = to.part(at..at + piece.len());
            self.load(offset + at as u64, &mut piece[..to.len()])?;
            IoSlice::new(&piece).copy_to(to);
        }
        Ok(())
    }

    /// Copies from memory by address to `offset`. Errors: as for [`Self::load`].
    fn store_from(&self, offset: u64, from: IoSlice<'_>) -> Result<(), Errno> {
        if let Some(bytes) = self.bytes(offset, from.len()) {
            from.copy_to(bytes);
            return Ok(());
        }
        let mut piece = [0; 512];
        for at in (0..from.len()).step_by(piece.len()) {
            let len = from.part(at..at + piece.len()).copy_to(IoSliceMut::new(&mut piece));
            self.store(offset + at as u64, &piece[..len])?;
        }
        Ok(())
    }

    /// Returns `len_bytes` at `offset` by address, if loads and stores there cannot fail.
    fn bytes(&self, offset: u64, len_bytes: usize) -> Option<IoSliceMut<'_>> {
        let _ = (offset, len_bytes);
        None
    }

    /// Stores the current value at `offset`, without undoing concurrent stores, so that a hole of the file becomes a
    /// page. Errors: as for [`Self::load`].
    fn touch(&self, offset: u64) -> Result<(), Errno>;

    /// From now on makes the first store to each page of `len_bytes` at `offset` wait until the page's storage
    /// allocation is durable (Linux: MAP_SYNC). Returns false if the memory does not support it, or the file is not on
    /// such storage.
    fn make_synchronous(&self, offset: u64, len_bytes: u64) -> bool {
        let _ = (offset, len_bytes);
        false
    }
}

/// A window in a kernel: device memory that is mapped permanently, and whose loads and stores do not fail.
pub struct MappedWindow {
    start: NonNull<u8>,
    len_bytes: usize,
}

// SAFETY: the fields do not change, and no reference into the memory is created; concurrent accesses by address are not
// a data race, because they are atomic, byte by byte.
unsafe impl Send for MappedWindow {}
// SAFETY: as above.
unsafe impl Sync for MappedWindow {}

impl MappedWindow {
    /// Creates a window of `len_bytes` at `start`.
    ///
    /// # Safety
    ///
    /// The memory is mapped for reading and writing for as long as this value lives, and holds no Rust value.
    pub unsafe fn new(start: NonNull<u8>, len_bytes: usize) -> Self {
        Self { start, len_bytes }
    }

    fn at(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        let offset = usize::try_from(offset).map_err(|_| Errno::FAULT)?;
        if offset.checked_add(len).is_none_or(|end| end > self.len_bytes) {
            return Err(Errno::FAULT);
        }
        // SAFETY: the offset lies within the memory that was passed to `new`.
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
        // 1. `at` has checked that the source lies within the memory, which is mapped as `new` requires.
        // 2. `bytes` is not part of it: no Rust value lies in the window. All accesses there are those of
        //    `shared_copy`, which are atomic, or the host's.
        unsafe { shared_copy::load(from, bytes) };
        Ok(())
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let to = self.at(offset, bytes.len())?;
        // SAFETY: as in `load`, in the other direction.
        unsafe { shared_copy::store(to, bytes) };
        Ok(())
    }

    fn bytes(&self, offset: u64, len_bytes: usize) -> Option<IoSliceMut<'_>> {
        let start = NonNull::new(self.at(offset, len_bytes).ok()?)?;
        // SAFETY: `at` has checked that the bytes lie within the memory, which is mapped for as long as `self` lives;
        // it holds no Rust value, and all accesses there are the host's or those of `shared_copy`.
        Some(unsafe { IoSliceMut::shared(start, len_bytes) })
    }

    fn touch(&self, offset: u64) -> Result<(), Errno> {
        let at = self.at(offset, 1)?;
        // SAFETY: as in `load`; a byte is always aligned, and concurrent accesses to it are atomic or, as with copies,
        // yield any mixture.
        let byte = unsafe { AtomicU8::from_ptr(at) };
        // An exchange, because an addition of zero may be compiled to a load.
        let mut seen = byte.load(Ordering::Relaxed);
        while let Err(other) = byte.compare_exchange_weak(seen, seen, Ordering::Relaxed, Ordering::Relaxed) {
            seen = other;
        }
        Ok(())
    }
}
