//! A group's version table in this process, mapped as a guest has it.

#![expect(unsafe_code, reason = "maps the file of the table")]

use std::{os::fd::BorrowedFd, ptr, sync::Arc};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use transom_guest::cache::{Region, TableWord, Versions};

struct Mapping {
    region: Region,
    start: *mut u8,
    len_bytes: usize,
}

// SAFETY: the address is used once more, to unmap the memory.
unsafe impl Send for Mapping {}
// SAFETY: as above; `Region` itself is `Sync`.
unsafe impl Sync for Mapping {}

impl AsRef<[TableWord]> for Mapping {
    fn as_ref(&self) -> &[TableWord] {
        self.region.as_ref()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `map`; references to its words ended with the borrow of `self`.
        unsafe { munmap(self.start.cast(), self.len_bytes) }.unwrap();
    }
}

/// Maps the table, for reading only.
pub(crate) fn map(file: BorrowedFd<'_>, len_bytes: usize) -> Versions {
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe { mmap(ptr::null_mut(), len_bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) }.unwrap();
    let start = start.cast::<u8>();
    let address = ptr::NonNull::new(start).unwrap();
    // SAFETY: mapped until `Mapping` is dropped; the daemons write words atomically.
    let region = unsafe { Region::new(address, len_bytes) }.unwrap();
    Versions::new(Arc::new(Mapping { region, start, len_bytes })).unwrap()
}
