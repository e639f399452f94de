//! The addresses at which one mapping shows its file.
//!
//! An [`Area`] owns an [`Extent`] of the reserved addresses, and is the only place that changes page tables there.
//! Pages of the window appear in it as second mappings of the same memory, by mremap(2) with an old size of 0.

#![expect(unsafe_code, reason = "changes what is mapped at its own addresses")]

use std::{
    ffi::c_void,
    io,
    ops::Range,
    ptr::{self, NonNull},
};

use rustix::mm::{
    MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap_anonymous, mprotect, mremap, mremap_fixed, munmap,
};

use super::space::Extent;
use crate::{fault::copy::copy, platform::PAGE_LEN};

const PAGE: usize = PAGE_LEN as usize;

/// Addresses at which only this value maps anything.
///
/// Offsets are in bytes and multiples of a page; every method returns EINVAL for a range that is empty or not within
/// the area.
#[derive(Debug)]
pub(super) struct Area(Extent);

impl Area {
    /// Takes an area of at least `len` bytes.
    ///
    /// # Errors
    ///
    /// Returns ENOMEM if no such addresses are left.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        Extent::new(len).map(Self)
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        let start = ptr::with_exposed_provenance_mut(self.addresses().start);
        NonNull::new(start).expect("the kernel maps nothing at address 0")
    }

    /// Returns the addresses of the area.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.0.addresses()
    }

    /// Shows at `at` the memory that begins at `from`: a shared mapping, which must stay in place until this returns.
    ///
    /// After an error, `at` may still show what was there before, or nothing, without even a reservation.
    pub(super) fn alias(&self, at: Range<usize>, from: NonNull<u8>, is_writable: bool) -> io::Result<()> {
        let (to, len) = self.pages(&at)?;
        if is_writable {
            // SAFETY:
            // 1. The replaced addresses lie within the area, which this value owns, and no Rust reference points into
            //    it.
            // 2. `from` is the caller's shared mapping, which an old size of 0 leaves in place.
            unsafe { mremap_fixed(from.as_ptr().cast(), 0, len, MremapFlags::MAYMOVE, to) }?;
            return Ok(());
        }
        // Mapped elsewhere first, because no store may reach it before it is read-only.
        // SAFETY: `from` is the caller's shared mapping, as above, and the kernel chooses the address of the new one.
        let aside = unsafe { mremap(from.as_ptr().cast(), 0, len, MremapFlags::MAYMOVE) }?;
        // SAFETY: the mapping at `aside` is new, and no one else knows its address; `to` is within the area.
        let moved = unsafe { mprotect(aside, len, MprotectFlags::READ).and_then(|()| move_to(aside, len, to)) };
        if moved.is_err() {
            // SAFETY: the mapping was not moved, and no one else knows its address.
            unsafe { munmap(aside, len) }?;
        }
        Ok(moved?)
    }

    /// Maps private memory at `at`, with a copy of the bytes at `from`, or zeros. Returns the number of pages mapped,
    /// which is smaller if `from` has fewer pages; 0 pages replace nothing.
    ///
    /// After an error, what is at `at` is unknown, as with [`Self::alias`].
    pub(super) fn fill(&self, at: Range<usize>, from: Option<NonNull<u8>>) -> io::Result<usize> {
        let (to, len) = self.pages(&at)?;
        // Mapped elsewhere first, so that no thread sees a partial copy.
        // SAFETY: the kernel chooses the address of the new mapping.
        let aside =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let copied = match from {
            // SAFETY: the new mapping has `len` bytes, and no one else knows its address; a fault at `from` ends the
            // copy.
            Some(from) => unsafe { copy(aside.cast(), from.as_ptr(), len) },
            None => len,
        };
        let copied = copied / PAGE * PAGE;
        if copied < len {
            // SAFETY: this is the end of the new mapping.
            unsafe { munmap(aside.byte_add(copied), len - copied) }?;
        }
        if copied > 0 {
            // SAFETY: this is the rest of the new mapping, and the replaced addresses are within the area.
            let moved = unsafe { move_to(aside, copied, to) };
            if moved.is_err() {
                // SAFETY: the mapping was not moved, and no one else knows its address.
                unsafe { munmap(aside, copied) }?;
            }
            moved?;
        }
        Ok(copied / PAGE)
    }

    /// Makes what is mapped at `at` read-only. Something must be mapped there.
    pub(super) fn write_protect(&self, at: Range<usize>) -> io::Result<()> {
        let (to, len) = self.pages(&at)?;
        // SAFETY: the addresses are within the area; the fault handler serves a store there.
        Ok(unsafe { mprotect(to, len, MprotectFlags::READ) }?)
    }

    /// Removes what is mapped at `at`; the addresses stay reserved.
    pub(super) fn clear(&self, at: Range<usize>) -> io::Result<()> {
        let (to, len) = self.pages(&at)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the addresses are within the area, and no Rust reference points into it; the fault handler serves an
        // access there.
        unsafe { mmap_anonymous(to, len, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    /// Checks that `at` consists of pages of the area, and returns its address and length.
    fn pages(&self, at: &Range<usize>) -> io::Result<(*mut c_void, usize)> {
        let addresses = self.addresses();
        let is_inside = at.start < at.end && at.end <= addresses.len() && (at.start | at.end).is_multiple_of(PAGE);
        if !is_inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok((ptr::with_exposed_provenance_mut(addresses.start + at.start), at.end - at.start))
    }
}

/// Moves a mapping of `len` bytes from `aside` to `to`, replacing what is there.
///
/// # Safety
///
/// The caller owns the mapping of `len` bytes at `aside` and the addresses at `to`, and no Rust reference points into
/// either.
unsafe fn move_to(aside: *mut c_void, len: usize, to: *mut c_void) -> rustix::io::Result<()> {
    // SAFETY: guaranteed by the caller.
    unsafe { mremap_fixed(aside, len, len, MremapFlags::MAYMOVE, to) }.map(drop)
}

impl Drop for Area {
    fn drop(&mut self) {
        // Addresses that cannot be cleared are leaked.
        if self.clear(0..self.addresses().len()).is_ok() {
            self.0.free();
        }
    }
}
