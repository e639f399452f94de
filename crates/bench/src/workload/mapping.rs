//! A private, read-only mapping of a file.
#![expect(unsafe_code, reason = "maps a file and reads from it")]

use std::{fs::File, io, ptr};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A mapping, removed when dropped.
pub(super) struct Mapping {
    start: *mut u8,
    len_bytes: usize,
}

impl Mapping {
    /// Maps the first `len_bytes` of `file`, which must be that long and stay so.
    pub(super) fn of(file: &File, len_bytes: usize) -> io::Result<Self> {
        // SAFETY: without MAP_FIXED the kernel chooses unused addresses, so no memory of this program changes.
        let start = unsafe { mmap(ptr::null_mut(), len_bytes, ProtFlags::READ, MapFlags::PRIVATE, file, 0)? };
        Ok(Self { start: start.cast(), len_bytes })
    }

    /// Reads one byte, for which the kernel may have to fetch its page.
    pub(super) fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.len_bytes, "{offset} lies beyond a mapping of {} bytes", self.len_bytes);
        // SAFETY:
        // 1. `start..start + len_bytes` is mapped readable until drop, and `offset` was checked against `len_bytes`.
        // 2. No Rust reference points into the mapping; the read is volatile, since the file may change meanwhile.
        unsafe { self.start.add(offset).read_volatile() }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is the range that `of` mapped, nothing else unmaps it, and `byte` hands out no references.
        let _ = unsafe { munmap(self.start.cast(), self.len_bytes) };
    }
}
