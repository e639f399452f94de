//! A mapping of a file: private and read-only, or shared and writable.
#![expect(unsafe_code, reason = "maps a file, reads from it and writes to it")]

use std::{fs::File, io, ptr};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use transom_user::map::{self, Protection};

use super::map_how::{Entries, MapHow};

/// A mapping, removed when dropped. One thread uses it.
pub struct Mapping {
    start: *mut u8,
    len_bytes: usize,
    is_writable: bool,
    /// The library's mapping, if it owns these addresses.
    library: Option<map::Mapping>,
}

impl Mapping {
    /// Maps the first `len_bytes` of `file`, which must be that long and stay so.
    pub(super) fn of(file: &File, len_bytes: usize, how: MapHow) -> io::Result<Self> {
        let (protection, flags) = match how.is_shared {
            true => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
            false => (ProtFlags::READ, MapFlags::PRIVATE),
        };
        // SAFETY: without MAP_FIXED the kernel chooses unused addresses, so no memory of this program changes.
        let start = unsafe { mmap(ptr::null_mut(), len_bytes, protection, flags, file, 0)? };
        let mapping = Self { start: start.cast(), len_bytes, is_writable: how.is_shared, library: None };
        let advice = match how.entries {
            Entries::Usual => return Ok(mapping),
            Entries::Small => Advice::LinuxNoHugepage,
            Entries::Huge => Advice::LinuxHugepage,
        };
        // SAFETY: the range that was just mapped; the advice changes nothing that a program can see. A kernel without
        // such pages refuses it, and has small ones.
        let _ = unsafe { madvise(start, len_bytes, advice) };
        Ok(mapping)
    }

    /// Wraps a mapping by the guest library of a file that must keep its length.
    pub(super) fn by_library(mapping: map::Mapping) -> Self {
        Self {
            start: mapping.as_ptr().as_ptr(),
            len_bytes: mapping.len(),
            is_writable: mapping.protection() == Protection::ReadWrite,
            library: Some(mapping),
        }
    }

    /// Reads one byte, which may fault in its page.
    pub(super) fn byte(&self, offset: usize) -> u8 {
        assert!(offset < self.len_bytes, "{offset} lies beyond a mapping of {} bytes", self.len_bytes);
        // SAFETY:
        // 1. `start..start + len_bytes` is mapped readable until drop, here or by `library`, and `offset` was checked
        //    against `len_bytes`.
        // 2. No Rust reference points into the mapping; the read is volatile, since the file may change meanwhile.
        unsafe { self.start.add(offset).read_volatile() }
    }

    /// Writes one byte, which may fault in its page and mark it dirty.
    pub(super) fn set_byte(&self, offset: usize, byte: u8) {
        assert!(self.is_writable && offset < self.len_bytes, "{offset} cannot be written");
        // SAFETY:
        // 1. `start..start + len_bytes` is mapped writable until drop, as `is_writable` says, and `offset` is below it.
        // 2. No Rust reference points into the mapping, and the type is not `Sync`: no other thread writes through it.
        unsafe { self.start.add(offset).write_volatile(byte) }
    }

    /// Copies a block out, like a program that reads through a mapping.
    pub(super) fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len_bytes);
        assert!(fits, "{} bytes at {offset} lie beyond a mapping of {} bytes", bytes.len(), self.len_bytes);
        // SAFETY:
        // 1. The range was checked against what is mapped readable until drop; `bytes` is memory of ours, elsewhere.
        // 2. No Rust reference points into the mapping, so the bytes are only ever copied as they are at that moment.
        unsafe { ptr::copy_nonoverlapping(self.start.add(offset), bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Copies a block in, like a program that writes through a mapping.
    pub(super) fn copy_from(&self, offset: usize, bytes: &[u8]) {
        let fits = offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len_bytes);
        assert!(self.is_writable && fits, "{} bytes at {offset} cannot be written", bytes.len());
        // SAFETY:
        // 1. The range was checked against what is mapped writable until drop, as `is_writable` says; `bytes` is
        //    elsewhere.
        // 2. No Rust reference points into the mapping, and the type is not `Sync`: no other thread writes through it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.library.is_none() {
            // SAFETY: this is the range that `of` mapped, nothing else unmaps it, and no method hands out references.
            let _ = unsafe { munmap(self.start.cast(), self.len_bytes) };
        }
    }
}
