//! Mappings of files, touched byte by byte because the file below may change or end at any time.
#![expect(unsafe_code, reason = "memory mappings")]

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};

use super::{child, raw::last_errno};
use crate::client::{Errno, MapMode, Mapping, Result};

/// A mapped range of a file.
pub(super) struct FileMapping {
    start: NonNull<u8>,
    len: usize,
    is_writable: bool,
}

// SAFETY: the memory is reached by volatile accesses of single bytes only, from any thread, and no reference into it
// is ever made; `start` and `len` do not change before the drop.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    pub(super) fn new(file: BorrowedFd<'_>, offset: u64, len: usize, mode: MapMode) -> Result<Self> {
        let protection = if mode.is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = if mode.is_shared { MapFlags::SHARED } else { MapFlags::PRIVATE };
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so nothing that exists is replaced.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, offset) }?;
        let start = NonNull::new(start.cast()).ok_or(Errno::NOMEM)?;
        Ok(Self { start, len, is_writable: mode.is_writable })
    }

    /// The address of `len` bytes at `offset`.
    fn part(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(len > 0 && len <= self.len, "{len} bytes of a mapping of {} bytes", self.len);
        self.at(offset + len - 1);
        self.at(offset)
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.len, "byte {offset} of a mapping of {} bytes", self.len);
        // SAFETY: the offset lies within the mapping, which is one allocation.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Mapping for FileMapping {
    fn load(&self, offset: usize, bytes: &mut [u8]) {
        for (index, byte) in bytes.iter_mut().enumerate() {
            // SAFETY: `at` checked the address, the mapping is readable, and any byte is a valid u8.
            *byte = unsafe { self.at(offset + index).read_volatile() };
        }
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        assert!(self.is_writable, "a store through a mapping that is read-only");
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: `at` checked the address, and the mapping is writable.
            unsafe { self.at(offset + index).write_volatile(*byte) };
        }
    }

    fn sync(&self) -> Result<()> {
        // SAFETY: the range is the mapping's; MS_SYNC changes no memory.
        unsafe { rustix::mm::msync(self.start.as_ptr().cast(), self.len, MsyncFlags::SYNC) }
    }

    fn read_from(&self, offset: usize, len: usize, file: BorrowedFd<'_>, file_offset: u64) -> Result<usize> {
        let address = self.part(offset, len);
        // SAFETY: the kernel writes `len` bytes of the mapping, which no reference points into, or answers EFAULT.
        let count = unsafe { libc::pread64(file.as_raw_fd(), address.cast(), len, file_offset as i64) };
        usize::try_from(count).map_err(|_| last_errno())
    }

    fn write_to(&self, offset: usize, len: usize, file: BorrowedFd<'_>, file_offset: u64) -> Result<usize> {
        let address = self.part(offset, len);
        // SAFETY: the kernel reads `len` bytes of the mapping, or answers EFAULT.
        let count = unsafe { libc::pwrite64(file.as_raw_fd(), address.cast(), len, file_offset as i64) };
        usize::try_from(count).map_err(|_| last_errno())
    }

    fn add(&self, offset: usize, number: u64) -> u64 {
        assert!(self.is_writable && offset.is_multiple_of(8), "an atomic store at {offset}");
        let address: *mut u64 = self.part(offset, 8).cast();
        // SAFETY: `part` checked that the eight bytes lie within the mapping; a mapping begins at a page and `offset`
        // is a multiple of 8, so that the address is aligned; any bytes are a u64, and others reach them by volatile or
        // atomic accesses only.
        unsafe { AtomicU64::from_ptr(address) }.fetch_add(number, Ordering::SeqCst)
    }

    fn is_bus_error(&self, offset: usize) -> bool {
        let address = self.at(offset);
        child::touch(address.cast_const()) == child::Ending::Signal(libc::SIGBUS)
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, no reference into it exists, and it is removed once.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
