//! Addresses that mapped files are seen at.
//!
//! One range of the process's addresses is reserved with the first mapping, without access: a fault is a mapped file's
//! exactly if its address lies there. An [`Area`] is a part of it that one mapping owns, and the only place where its
//! page tables are changed: pages of the window appear in it as second mappings of the same memory, by mremap(2) with
//! an old size of 0.

#![expect(unsafe_code, reason = "changes what is mapped at addresses of its own")]

use std::{
    collections::BTreeMap,
    io,
    ops::Range,
    ptr::{self, NonNull},
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::mm::{
    MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap_anonymous, mprotect, mremap, mremap_fixed, munmap,
};
use transom_guest::dax::entry::PAGE_LEN;

use super::room;
use crate::fault::copy::copy;

/// Areas begin and end at multiples of a huge page, so that addresses and files are congruent.
pub(super) const GRANULE: usize = 2 << 20;
/// What is reserved where the system allows for it; else half of it, and so on down to [`LEN_MIN`].
const LEN_MAX: usize = 1 << 40;
const LEN_MIN: usize = 1 << 30;
const PAGE: usize = PAGE_LEN as usize;

/// Where the reserved addresses begin and end; 0 before they are. Read by the signal handler.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Whether `address` is a mapped file's.
pub(super) fn contains(address: usize) -> bool {
    (START.load(Ordering::Acquire)..END.load(Ordering::Acquire)).contains(&address)
}

/// The reserved addresses that are free, by their beginning: lengths.
struct Space(Mutex<BTreeMap<usize, usize>>);

impl Space {
    fn get() -> io::Result<&'static Self> {
        static SPACE: OnceLock<Space> = OnceLock::new();
        if let Some(space) = SPACE.get() {
            return Ok(space);
        }
        let (start, len) = reserve()?;
        let mut is_ours = false;
        let space = SPACE.get_or_init(|| {
            is_ours = true;
            END.store(start + len, Ordering::Release);
            START.store(start, Ordering::Release);
            Self(Mutex::new(BTreeMap::from([(start, len)])))
        });
        if !is_ours {
            // SAFETY: reserved above, used by nobody.
            unsafe { munmap(ptr::with_exposed_provenance_mut(start), len) }?;
        }
        room::keep();
        Ok(space)
    }

    fn take(&self, len: usize) -> Option<usize> {
        let mut free = self.0.lock();
        let (start, of) = free.iter().map(|(&start, &of)| (start, of)).find(|&(_, of)| of >= len)?;
        free.remove(&start);
        if of > len {
            free.insert(start + len, of - len);
        }
        Some(start)
    }

    fn put(&self, start: usize, len: usize) {
        let mut free = self.0.lock();
        let (mut start, mut len) = (start, len);
        if let Some((&before, &of)) = free.range(..start).next_back()
            && before + of == start
        {
            free.remove(&before);
            (start, len) = (before, of + len);
        }
        if let Some(of) = free.remove(&(start + len)) {
            len += of;
        }
        free.insert(start, len);
    }
}

/// Reserves addresses, aligned to [`GRANULE`].
fn reserve() -> io::Result<(usize, usize)> {
    let mut len = LEN_MAX;
    loop {
        // SAFETY: a new mapping at a place of the kernel's choice, that nothing can be done with.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        match start {
            Ok(start) => {
                let start = start.expose_provenance();
                let first = start.next_multiple_of(GRANULE);
                return Ok((first, (start + len - first) / GRANULE * GRANULE));
            }
            Err(error) if len <= LEN_MIN => return Err(error.into()),
            Err(_) => len /= 2,
        }
    }
}

/// A part of the reserved addresses, a multiple of [`GRANULE`] long: nothing is mapped there but by this.
///
/// Offsets are in bytes, multiples of a page; a range beyond the area is EINVAL.
#[derive(Debug)]
pub(super) struct Area {
    start: usize,
    len: usize,
}

impl Area {
    /// `len` bytes, rounded up. Errors: ENOMEM where there are no such addresses left.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(GRANULE).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = Space::get()?.take(len).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, len })
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        NonNull::new(ptr::with_exposed_provenance_mut(self.start)).expect("the kernel maps nothing at address 0")
    }

    /// The addresses.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// Shows at `at` the memory that begins at `from`, which is a shared mapping that stays until this returns.
    ///
    /// Where it fails, what is at `at` is not known: what was there before, or nothing, not even a reservation.
    pub(super) fn alias(&self, at: Range<usize>, from: NonNull<u8>, is_writable: bool) -> io::Result<()> {
        let (to, len) = self.place(&at)?;
        if is_writable {
            // SAFETY:
            // 1. The addresses that are replaced lie within the area, which is ours, and hold nothing that Rust refers
            //    to.
            // 2. `from` is the caller's shared mapping. With an old size of 0 it stays as it is.
            unsafe { mremap_fixed(from.as_ptr().cast(), 0, len, MremapFlags::MAYMOVE, to) }?;
            return Ok(());
        }
        // Elsewhere first: no store may come through before it is read-only.
        // SAFETY: as above; the kernel chooses the place.
        let aside = unsafe { mremap(from.as_ptr().cast(), 0, len, MremapFlags::MAYMOVE) }?;
        // SAFETY: the mapping that was made, which nobody knows of.
        let moved = unsafe { mprotect(aside, len, MprotectFlags::READ).and_then(|()| move_to(aside, len, to)) };
        if moved.is_err() {
            // SAFETY: as above.
            unsafe { munmap(aside, len) }?;
        }
        Ok(moved?)
    }

    /// Puts ordinary memory at `at`, with what `from` begins with; gives how many pages of that are there. None
    /// replaces nothing.
    ///
    /// Where it fails, what is at `at` is not known, as with [`Self::alias`].
    pub(super) fn fill(&self, at: Range<usize>, from: Option<NonNull<u8>>) -> io::Result<usize> {
        let (to, len) = self.place(&at)?;
        // Elsewhere first: nobody may see it half full.
        // SAFETY: a new mapping at a place of the kernel's choice.
        let aside =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) }?;
        let copied = match from {
            // SAFETY: the new mapping is as long, and only we know of it; of `from`, what is not mapped ends the copy.
            Some(from) => unsafe { copy(aside.cast(), from.as_ptr(), len) },
            None => len,
        };
        let there = copied / PAGE * PAGE;
        if there < len {
            // SAFETY: the end of the new mapping.
            unsafe { munmap(aside.byte_add(there), len - there) }?;
        }
        if there > 0 {
            // SAFETY: what is left of it; the addresses that are replaced are ours.
            let moved = unsafe { move_to(aside, there, to) };
            if moved.is_err() {
                // SAFETY: the mapping that was made, which nobody knows of.
                unsafe { munmap(aside, there) }?;
            }
            moved?;
        }
        Ok(there / PAGE)
    }

    /// Makes what is at `at` read-only. Something must be there.
    pub(super) fn write_protect(&self, at: Range<usize>) -> io::Result<()> {
        let (to, len) = self.place(&at)?;
        // SAFETY: the addresses are ours; who stores there meets the handler of faults.
        Ok(unsafe { mprotect(to, len, MprotectFlags::READ) }?)
    }

    /// Takes out what is at `at`.
    pub(super) fn clear(&self, at: Range<usize>) -> io::Result<()> {
        let (to, len) = self.place(&at)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the addresses are ours, and hold nothing that Rust refers to; who touches them meets the handler of
        // faults.
        unsafe { mmap_anonymous(to, len, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    fn place(&self, at: &Range<usize>) -> io::Result<(*mut std::ffi::c_void, usize)> {
        let is_inside = at.start < at.end && at.end <= self.len && (at.start | at.end).is_multiple_of(PAGE);
        if !is_inside {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok((ptr::with_exposed_provenance_mut(self.start + at.start), at.end - at.start))
    }
}

/// # Safety
/// The mapping of `len` bytes at `aside` is the caller's, and so are the addresses at `to`, which hold nothing that
/// Rust refers to.
unsafe fn move_to(aside: *mut std::ffi::c_void, len: usize, to: *mut std::ffi::c_void) -> rustix::io::Result<()> {
    // SAFETY: as the caller promises.
    unsafe { mremap_fixed(aside, len, len, MremapFlags::MAYMOVE, to) }.map(drop)
}

impl Drop for Area {
    /// Addresses that cannot be cleared are not used again.
    fn drop(&mut self) {
        if self.clear(0..self.len).is_ok()
            && let Ok(space) = Space::get()
        {
            space.put(self.start, self.len);
        }
    }
}
