//! The group's file in memory.

#![expect(unsafe_code, reason = "a mapping has an address and a lifetime of its own")]

use std::{
    ffi::c_void,
    os::fd::AsFd,
    ptr::NonNull,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use transom_versions::{AtomicU64, Region};

use super::fault::Guard;
use crate::Errno;

/// The beginning of a file, mapped for reading and writing, as words. Clones share the mapping.
#[derive(Debug, Clone)]
pub(super) struct Mapping(Arc<Mapped>);

#[derive(Debug)]
struct Mapped {
    /// Dropped first: from then on the range may belong to somebody else.
    guard: Mutex<Option<Guard>>,
    region: Region,
    start: NonNull<c_void>,
    len_bytes: usize,
}

// SAFETY: the address and the length do not change, and the memory is only accessed as atomics, through `region`.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapping {
    /// Maps `len_bytes` of `file`. Errors: EINVAL for a length of 0; those of mmap(2).
    pub(super) fn new(file: impl AsFd, len_bytes: usize) -> Result<Self, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so no existing mapping is replaced.
        let start = unsafe { mmap(std::ptr::null_mut(), len_bytes, prot, MapFlags::SHARED, file, 0) }?;
        let start = NonNull::new(start).ok_or(Errno::NOMEM)?;
        // SAFETY:
        // 1. The mapping is there until the value that owns the region is dropped.
        // 2. Nobody but the region makes references to it.
        // 3. Daemons write the file through values of this type only; guests map it for reading.
        let region = unsafe { Region::new(start.cast(), len_bytes) }.map_err(|_| Errno::INVAL)?;
        Ok(Self(Arc::new(Mapped { guard: Mutex::new(None), region, start, len_bytes })))
    }
}

impl Mapping {
    /// As [`Self::new`], for a file that others may truncate: what is missing then is replaced by zeros.
    pub(super) fn guarded(file: impl AsFd, len_bytes: usize) -> Result<Self, Errno> {
        let mapping = Self::new(file, len_bytes)?;
        let guard = Guard::new(mapping.0.start.as_ptr() as usize, len_bytes).ok_or(Errno::NOMEM)?;
        *mapping.0.guard.lock().unwrap_or_else(PoisonError::into_inner) = Some(guard);
        Ok(mapping)
    }
}

impl AsRef<[AtomicU64]> for Mapping {
    #[inline]
    fn as_ref(&self) -> &[AtomicU64] {
        self.0.region.as_ref()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        drop(self.guard.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        // SAFETY: `start` and `len_bytes` are those of the mapping that `new` made, and every reference to its memory
        // borrows this value.
        let result = unsafe { munmap(self.start.as_ptr(), self.len_bytes) };
        debug_assert_eq!(result, Ok(()), "a mapping is unmapped once");
    }
}
