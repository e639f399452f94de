//! A shared mapping that is touched by copies of the kernel's, so that what has no page is an error and no signal.

#![expect(unsafe_code, reason = "memory mappings, and copies by address")]

use std::{ffi::c_void, io, os::fd::AsFd, ptr::null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping, readable and writable.
pub(crate) struct Mapped {
    start: *mut c_void,
    len: usize,
}

// SAFETY: `start` and `len` never change, no reference into the memory is ever made, and the kernel does every access.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Maps `len` bytes of `file` from `offset` on.
    pub(crate) fn new(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so nothing that exists is replaced.
        let start = unsafe { mmap(null_mut(), len, protection, MapFlags::SHARED, file, offset) }?;
        Ok(Self { start, len })
    }

    /// Errors: EFAULT where a page is missing.
    pub(crate) fn load(&self, offset: usize, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let remote = self.part(offset, len);
        // SAFETY: `local` is `bytes`, borrowed for writing; the kernel checks the other address, which holds no Rust
        // value.
        let copied = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
        check(copied, len)?;
        Ok(bytes)
    }

    /// Errors: as with `load`.
    pub(crate) fn store(&self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        let remote = self.part(offset, bytes.len());
        // SAFETY: the kernel only reads `local`, which is `bytes`; it writes to the mapping, which holds no Rust value.
        let copied = unsafe { libc::process_vm_writev(libc::getpid(), &local, 1, &remote, 1, 0) };
        check(copied, bytes.len())
    }

    fn part(&self, offset: usize, len: usize) -> libc::iovec {
        assert!(offset + len <= self.len, "{len} bytes at {offset} of a mapping of {} bytes", self.len);
        libc::iovec { iov_base: self.start.wrapping_byte_add(offset), iov_len: len }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, no reference into it exists, and it is removed once.
        let _ = unsafe { munmap(self.start, self.len) };
    }
}

fn check(copied: isize, len: usize) -> io::Result<()> {
    match usize::try_from(copied) {
        Ok(copied) if copied == len => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
