//! The memory of a window: reserved addresses, into which parts of files are mapped.
//!
//! [`Reservation`] holds every unsafe operation on a window, and each of them checks that its range lies within the
//! reservation. [`Area`](super::area::Area) keeps track of what is mapped where.

#![expect(unsafe_code, reason = "memory mappings at fixed addresses, and copies by address")]

use std::{
    ffi::c_void,
    io,
    os::fd::AsFd,
    ptr::{self, NonNull},
};

use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap_fixed, munmap};
use transom_guest::{
    memory::{IoSlice, IoSliceMut},
    session::PAGE_LEN,
};

use crate::fault::copy::{copy, touch};

/// Addresses that belong to one window. Offsets and lengths are in bytes.
#[derive(Debug)]
pub(super) struct Reservation {
    /// The whole mapping, of which the window is the aligned part.
    reserved: NonNull<c_void>,
    reserved_len: usize,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: addresses and lengths do not change, no reference into the memory is made, and the kernel orders changes of
// the memory map among threads.
unsafe impl Send for Reservation {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes at a multiple of `alignment`, a power of two. They can be neither read nor written.
    ///
    /// # Errors
    ///
    /// Returns the errors of mmap(2).
    pub(super) fn new(len: usize, alignment: usize) -> io::Result<Self> {
        let reserved_len = len.checked_add(alignment).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so no existing mapping is replaced.
        let reserved = unsafe { mmap_anonymous(ptr::null_mut(), reserved_len, ProtFlags::empty(), inaccessible()) }?;
        let reserved = NonNull::new(reserved).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = reserved.cast::<u8>();
        let skipped = start.as_ptr().align_offset(alignment);
        // SAFETY: `skipped` is less than `alignment`, and the reservation is longer than the window by `alignment`.
        let start = unsafe { start.add(skipped) };
        Ok(Self { reserved, reserved_len, start, len })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Checks that a range lies within the window and consists of whole pages.
    ///
    /// # Errors
    ///
    /// Returns EINVAL if it does not, or if it is empty.
    pub(super) fn check_pages(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pages(offset, len).map(drop)
    }

    /// Maps `len` bytes of `file` at `offset`, replacing what is there, in huge pages if the file system has them.
    ///
    /// # Errors
    ///
    /// Returns EINVAL as [`Self::check_pages`] does, and the errors of mmap(2).
    pub(super) fn map(
        &self,
        (offset, len): (u64, u64),
        file: impl AsFd,
        file_offset: u64,
        is_writable: bool,
    ) -> io::Result<()> {
        let (address, len) = self.pages(offset, len)?;
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: `pages` checked that the replaced range lies within the reservation, which holds no Rust value.
        unsafe { mmap(address, len, protection, MapFlags::SHARED | MapFlags::FIXED, &file, file_offset) }?;
        // Refused by a kernel without huge pages, which is harmless.
        // SAFETY: the range was just mapped, and the advice changes nothing that a program can see.
        let _ = unsafe { madvise(address, len, Advice::LinuxHugepage) };
        Ok(())
    }

    /// Maps as [`Self::map`] does, for loads and stores and with MAP_SYNC. After an error, what was mapped remains.
    ///
    /// # Errors
    ///
    /// Returns EINVAL as [`Self::check_pages`] does, and the errors of mmap(2), such as EOPNOTSUPP if the file is not
    /// on DAX storage.
    pub(super) fn map_sync(&self, (offset, len): (u64, u64), file: impl AsFd, file_offset: u64) -> io::Result<()> {
        let (to, len) = self.pages(offset, len)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED_VALIDATE | MapFlags::SYNC);
        // Mapped elsewhere first, because a failing mmap(2) at a fixed address may remove what was there.
        // SAFETY: the kernel chooses the address of the new mapping.
        let aside = unsafe { mmap(ptr::null_mut(), len, protection, flags, file, file_offset) }?;
        // SAFETY:
        // 1. The mapping at `aside` is new, has `len` bytes, and no one else knows its address.
        // 2. `pages` checked that the replaced range lies within the reservation, which holds no Rust value.
        let moved = unsafe { mremap_fixed(aside, len, len, MremapFlags::MAYMOVE, to) };
        if moved.is_err() {
            // SAFETY: the mapping was not moved, and no one else knows its address.
            unsafe { munmap(aside, len) }?;
        }
        moved?;
        Ok(())
    }

    /// Removes what is mapped in a range; its addresses stay reserved.
    ///
    /// # Errors
    ///
    /// Returns EINVAL as [`Self::check_pages`] does, and the errors of mmap(2).
    pub(super) fn unmap(&self, offset: u64, len: u64) -> io::Result<()> {
        let (address, len) = self.pages(offset, len)?;
        // SAFETY: `pages` checked that the replaced range lies within the reservation, which holds no Rust value.
        unsafe { mmap_anonymous(address, len, ProtFlags::empty(), inaccessible() | MapFlags::FIXED) }?;
        Ok(())
    }

    /// Copies from the window to `to`. Returns the number of bytes copied before an unmapped page or the end of a
    /// file, or `None` if the range lies outside the window.
    pub(super) fn load(&self, offset: u64, to: IoSliceMut<'_>) -> Option<usize> {
        let from = self.address(offset, to.len())?;
        // SAFETY:
        // 1. `to` may be written, others access it only atomically, and it has the length of the copy.
        // 2. `address` checked that the source lies within the window, which holds no Rust value.
        // 3. A fault in the window ends the copy.
        Some(unsafe { copy(to.as_ptr(), from, to.len()) })
    }

    /// Copies `from` to the window. Returns the number of bytes copied before a page that cannot be written, or `None`
    /// if the range lies outside the window.
    pub(super) fn store(&self, offset: u64, from: IoSlice<'_>) -> Option<usize> {
        let to = self.address(offset, from.len())?;
        // SAFETY:
        // 1. `from` may be read, others change it only atomically, and it has the length of the copy.
        // 2. `address` checked that the target lies within the window, which holds no Rust value.
        // 3. A fault in the window ends the copy.
        Some(unsafe { copy(to, from.as_ptr(), from.len()) })
    }

    /// Faults the page at `offset` in for a store, without changing it. Returns whether that succeeded, or `None` if
    /// the offset lies outside the window.
    pub(super) fn touch(&self, offset: u64) -> Option<bool> {
        let at = self.address(offset, 1)?;
        // SAFETY: `address` checked that the byte lies within the window, which holds no Rust value.
        Some(unsafe { touch(at) })
    }

    /// Returns the address and length of a range of whole pages; mmap(2) rejects it if the system's pages are larger.
    fn pages(&self, offset: u64, len: u64) -> io::Result<(*mut c_void, usize)> {
        let is_whole = |number: u64| number.is_multiple_of(PAGE_LEN as u64);
        let invalid = || io::Error::from_raw_os_error(libc::EINVAL);
        if len == 0 || !is_whole(offset) || !is_whole(len) {
            return Err(invalid());
        }
        let len = usize::try_from(len).map_err(|_| invalid())?;
        let address = self.address(offset, len).ok_or_else(invalid)?;
        Ok((address.cast(), len))
    }

    /// Returns the address of a range, or `None` if it does not lie within the window.
    fn address(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        offset.checked_add(len).filter(|&end| end <= self.len)?;
        // SAFETY: the offset is at most the window's length, and the window is part of one allocation.
        Some(unsafe { self.start.as_ptr().add(offset) })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: this value owns the reservation, nothing refers into it, and it is unmapped once.
        let _ = unsafe { munmap(self.reserved.as_ptr(), self.reserved_len) };
    }
}

fn inaccessible() -> MapFlags {
    MapFlags::PRIVATE | MapFlags::NORESERVE
}
