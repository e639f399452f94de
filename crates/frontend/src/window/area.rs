//! The memory of a window in this process: a reserved range, mapped piece by piece.
//!
//! The guest's loads and stores are copies made by the kernel, so that an access to what is not mapped, or past the end
//! of a file, fails with an error instead of a signal.
#![expect(unsafe_code, reason = "memory mappings at fixed addresses, and copies by address")]

use std::{io, os::fd::BorrowedFd, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A reserved range of addresses.
pub(super) struct Area {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: `start` and `len` do not change, no reference into the memory is ever made, and the kernel does every access.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Reserves `len` bytes of inaccessible address space.
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so nothing that exists is replaced.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), reserved()) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?, len })
    }

    /// Maps `len` bytes of `file` at `offset`.
    ///
    /// # Errors
    /// Those of mmap(2); `EINVAL` if the range is not within the area.
    pub(super) fn map(
        &self,
        offset: u64,
        len: u64,
        file: BorrowedFd<'_>,
        file_offset: u64,
        is_writable: bool,
    ) -> io::Result<()> {
        let (address, len) = self.part(offset, len)?;
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: `part` has checked that what is replaced lies within the area, which holds no Rust value.
        unsafe { mmap(address, len, protection, MapFlags::SHARED | MapFlags::FIXED, file, file_offset) }?;
        Ok(())
    }

    /// Unmaps a range; its addresses stay reserved.
    pub(super) fn unmap(&self, offset: u64, len: u64) -> io::Result<()> {
        let (address, len) = self.part(offset, len)?;
        // SAFETY: as in `map`.
        unsafe { mmap_anonymous(address, len, ProtFlags::empty(), reserved() | MapFlags::FIXED) }?;
        Ok(())
    }

    /// Copies from `offset`.
    ///
    /// # Errors
    /// `EFAULT` if part of the range is not mapped or has no page.
    pub(super) fn load(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (address, len) = self.part(offset, bytes.len() as u64)?;
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: address, iov_len: len };
        // SAFETY: `local` is `bytes`, borrowed for writing; the kernel checks the other address, which holds no Rust
        // value.
        let copied = unsafe { libc::process_vm_readv(std::process::id() as i32, &local, 1, &remote, 1, 0) };
        check(copied, len)
    }

    /// Copies to `offset`.
    ///
    /// # Errors
    /// As for [`Area::load`], and if the range is mapped read-only.
    pub(super) fn store(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (address, len) = self.part(offset, bytes.len() as u64)?;
        let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: len };
        let remote = libc::iovec { iov_base: address, iov_len: len };
        // SAFETY: the kernel only reads `local`, which is `bytes`; it writes to the area, which holds no Rust value.
        let copied = unsafe { libc::process_vm_writev(std::process::id() as i32, &local, 1, &remote, 1, 0) };
        check(copied, len)
    }

    fn part(&self, offset: u64, len: u64) -> io::Result<(*mut std::ffi::c_void, usize)> {
        let (Ok(offset), Ok(len)) = (usize::try_from(offset), usize::try_from(len)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the offset lies within the area, which is one reservation.
        Ok((unsafe { self.start.as_ptr().add(offset) }.cast(), len))
    }
}

fn reserved() -> MapFlags {
    MapFlags::PRIVATE | MapFlags::NORESERVE
}

fn check(copied: isize, wanted: usize) -> io::Result<()> {
    match usize::try_from(copied) {
        Ok(copied) if copied == wanted => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EFAULT)),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the reservation is this value's own, nothing refers into it, and it is removed once.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
