//! The daemon's version table in this process, mapped for reading.

#![expect(unsafe_code, reason = "a mapping has an address and a lifetime of its own")]

use std::{ffi::c_void, io, os::fd::BorrowedFd, ptr::NonNull, sync::Arc};

use rustix::{
    fs::fstat,
    mm::{MapFlags, ProtFlags, mmap, munmap},
};
use transom_versions::{AtomicU64, Region};

/// Maximum length of the table, which bounds the addresses that a daemon can make this process map: that of the largest
/// table.
const LEN_MAX: u64 = transom_versions::layout::len_bytes(transom_versions::layout::SLOTS_LOG2_MAX) as u64;

/// The version table of a daemon's coherence group. It stays mapped for as long as a clone of this value lives, also
/// after the daemon has ended; what was cached before is then of no use, because the daemon cannot be asked any more.
#[derive(Debug, Clone)]
pub struct VersionTable(Arc<Mapping>);

#[derive(Debug)]
struct Mapping {
    region: Region,
    start: NonNull<c_void>,
    len: usize,
}

// SAFETY: the address and the length do not change, and the memory is only accessed as atomics, through `region`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl VersionTable {
    /// Maps `len` bytes of `file`, from `offset`, for reading.
    ///
    /// # Errors
    ///
    /// EINVAL if the file is shorter, because an access beyond its end would kill this process; those of mmap(2).
    pub(super) fn map(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<Self> {
        let end =
            offset.checked_add(len).filter(|_| (1..=LEN_MAX).contains(&len)).ok_or(io::ErrorKind::InvalidInput)?;
        if fstat(file)?.st_size.cast_unsigned() < end {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let len = len as usize;
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so no existing mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset) }?;
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY:
        // 1. The mapping is there until the value that owns the region is dropped.
        // 2. Nobody but the region makes references to it.
        // 3. This process cannot write it, and daemons write whole words atomically. A daemon that does not can only
        //    make this process take a wrong number for a stamp.
        // 4. Nothing here passes it to a writer.
        let region = unsafe { Region::new(start.cast(), len) }.map_err(io::Error::other)?;
        Ok(Self(Arc::new(Mapping { region, start, len })))
    }

    /// Returns address and length in bytes.
    pub(crate) fn span(&self) -> (u64, u64) {
        (self.0.start.addr().get() as u64, self.0.len as u64)
    }
}

impl AsRef<[AtomicU64]> for VersionTable {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.region.as_ref()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `start` and `len` are those of the mapping that `map` made, and every reference to its memory borrows
        // this value.
        let result = unsafe { munmap(self.start.as_ptr(), self.len) };
        debug_assert_eq!(result, Ok(()), "a mapping is unmapped once");
    }
}
