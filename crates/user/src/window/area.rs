//! The memory of a window: a reservation, and files mapped into it.
//!
//! Files on DAX storage are kept while they are mapped: somebody may want to store durably without requests, and then
//! they are mapped again, with MAP_SYNC.
//!
//! Lock: `mappings`, held for one system call of the memory map.

#![expect(unsafe_code, reason = "memory mappings at fixed addresses, and copies by address")]

use std::{
    collections::BTreeMap,
    ffi::c_void,
    io,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap_fixed, munmap};
use transom_guest::{Errno, dax::WindowMemory, session::PAGE_LEN};

use super::{ALIGNMENT, persistent::PersistentFiles};
use crate::fault::copy::{copy, touch};

/// Where nothing else is mapped than what the daemon asked for.
#[derive(Debug)]
pub struct Area {
    /// The reservation, of which the window is the aligned part.
    reserved: NonNull<c_void>,
    reserved_len: usize,
    start: NonNull<u8>,
    len: usize,
    /// By offset, in bytes.
    mappings: Mutex<BTreeMap<u64, Mapping>>,
    mappings_max: usize,
    files: PersistentFiles,
    is_map_sync_off: AtomicBool,
    is_gone: AtomicBool,
}

/// Something that the daemon has mapped.
#[derive(Debug)]
struct Mapping {
    len: u64,
    sync: MapSync,
}

/// Whether stores wait for the file's metadata (MAP_SYNC).
#[derive(Debug)]
enum MapSync {
    Never,
    /// It can be had, with this file from this offset on.
    Possible(Arc<OwnedFd>, u64),
    Always,
}

// SAFETY: addresses and lengths do not change, no reference into the memory is made, and the kernel orders changes of
// the memory map among threads.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Reserves `len` bytes, a multiple of 2 MiB, that nothing can be read from. Errors: those of mmap(2).
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        let alignment = ALIGNMENT as usize;
        let reserved_len = len.checked_add(alignment).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the kernel chooses the address (null hint, no MAP_FIXED), so that nothing that exists is replaced.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), reserved_len, ProtFlags::empty(), empty()) }?;
        let reserved = NonNull::new(reserved).ok_or(io::ErrorKind::OutOfMemory)?;
        let start = reserved.cast::<u8>();
        let skipped = start.as_ptr().align_offset(alignment);
        // SAFETY: less than an alignment is skipped, by which the reservation is longer than the window.
        let start = unsafe { start.add(skipped) };
        Ok(Self {
            reserved,
            reserved_len,
            start,
            len,
            mappings: Mutex::default(),
            mappings_max: len / alignment,
            files: PersistentFiles::default(),
            is_map_sync_off: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
        })
    }

    /// Has `len` bytes of `file` from `file_offset` on appear at `offset`, in pages of 2 MiB where the file's system
    /// makes such.
    ///
    /// Errors: EINVAL outside the window or for what is no multiple of a page, EEXIST where something is mapped, ENOSPC
    /// for more mappings than the window has ranges, and those of mmap(2).
    pub(super) fn map(
        &self,
        offset: u64,
        len: u64,
        file: impl AsFd,
        file_offset: u64,
        is_writable: bool,
    ) -> io::Result<()> {
        let (address, map_len) = self.part(offset, len)?;
        if !is_whole(file_offset) || file_offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let mut mappings = self.mappings.lock();
        let before = mappings.range(..offset + len).next_back();
        if before.is_some_and(|(&at, mapped)| at + mapped.len > offset) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        if mappings.len() >= self.mappings_max {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        let protection = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: `part` has checked that what is replaced lies within the reservation, which holds no Rust value.
        unsafe { mmap(address, map_len, protection, MapFlags::SHARED | MapFlags::FIXED, &file, file_offset) }?;
        // SAFETY: what was just mapped; the advice changes nothing that a program can see.
        // It is refused where the kernel has no large pages.
        let _ = unsafe { madvise(address, map_len, Advice::LinuxHugepage) };
        let kept = if is_writable { self.files.keep(file) } else { None };
        let sync = kept.map_or(MapSync::Never, |file| MapSync::Possible(file, file_offset));
        mappings.insert(offset, Mapping { len, sync });
        Ok(())
    }

    /// Maps with MAP_SYNC what is mapped at `offset`; false where the storage is not made for it.
    fn map_sync(&self, offset: u64, len: u64) -> io::Result<bool> {
        let (to, map_len) = self.part(offset, len)?;
        let mut mappings = self.mappings.lock();
        let Some(mapping) = mappings.get_mut(&offset).filter(|mapping| mapping.len == len) else { return Ok(false) };
        let (file, file_offset) = match &mapping.sync {
            MapSync::Never => return Ok(false),
            MapSync::Always => return Ok(true),
            MapSync::Possible(file, file_offset) => (file, *file_offset),
        };
        let flags = MapFlags::SHARED_VALIDATE | MapFlags::SYNC;
        // Elsewhere first: where it is refused, what is there stays.
        // SAFETY: a new mapping at a place of the kernel's choice.
        let aside = unsafe {
            mmap(std::ptr::null_mut(), map_len, ProtFlags::READ | ProtFlags::WRITE, flags, file, file_offset)
        };
        let aside = match aside {
            Err(rustix::io::Errno::OPNOTSUPP) => {
                mapping.sync = MapSync::Never;
                return Ok(false);
            }
            aside => aside?,
        };
        // SAFETY: the new mapping, which nobody knows of; what it replaces lies within the reservation, and is the same
        // memory.
        let moved = unsafe { mremap_fixed(aside, map_len, map_len, MremapFlags::MAYMOVE, to) };
        if moved.is_err() {
            // SAFETY: as above.
            unsafe { munmap(aside, map_len) }?;
        }
        moved?;
        mapping.sync = MapSync::Always;
        Ok(true)
    }

    /// Maps nothing with MAP_SYNC from now on: each first store to a page of a
    /// [`Sharing::SharedSync`](crate::map::Sharing) mapping then waits for an FSYNC request, as it does in a kernel
    /// that has the window from its device.
    pub fn disable_map_sync(&self) {
        self.is_map_sync_off.store(true, Ordering::Relaxed);
    }

    /// How many mappings have MAP_SYNC.
    pub fn synchronous_mappings(&self) -> usize {
        self.mappings.lock().values().filter(|mapping| matches!(mapping.sync, MapSync::Always)).count()
    }

    /// Ends one mapping; the addresses stay reserved. Errors: ENOENT for what is not the whole of one.
    pub(super) fn unmap(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut mappings = self.mappings.lock();
        if mappings.get(&offset).is_none_or(|mapping| mapping.len != len) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.forget(offset, len)?;
        mappings.remove(&offset);
        Ok(())
    }

    /// Ends every mapping, as a reset of the device does.
    pub(crate) fn clear(&self) {
        let mut mappings = self.mappings.lock();
        // One that cannot be ended stays listed, and nothing is mapped over it.
        mappings.retain(|&offset, mapping| self.forget(offset, mapping.len).is_err());
    }

    /// How many mappings there are.
    pub fn mappings(&self) -> usize {
        self.mappings.lock().len()
    }

    /// Lets no load and store through this succeed any more: the daemon is gone.
    pub(crate) fn close(&self) {
        self.is_gone.store(true, Ordering::Release);
    }

    fn forget(&self, offset: u64, len: u64) -> io::Result<()> {
        let (address, len) = self.part(offset, len)?;
        // SAFETY: as in `map`.
        unsafe { mmap_anonymous(address, len, ProtFlags::empty(), empty() | MapFlags::FIXED) }?;
        Ok(())
    }

    fn part(&self, offset: u64, len: u64) -> io::Result<(*mut c_void, usize)> {
        let is_inside = offset.checked_add(len).is_some_and(|end| end <= self.len as u64);
        if len == 0 || !is_inside || !is_whole(offset) || !is_whole(len) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Ok((self.at(offset as usize).cast(), len as usize))
    }

    /// `offset` lies within the window.
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: the callers have checked that the offset lies within the reservation, which is one allocation.
        unsafe { self.start.as_ptr().add(offset) }
    }

    fn check(&self, offset: u64, len: usize) -> Result<*mut u8, Errno> {
        if self.is_gone.load(Ordering::Acquire) {
            return Err(Errno::NOTCONN);
        }
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len as u64 => Ok(self.at(offset as usize)),
            _ => Err(Errno::FAULT),
        }
    }
}

impl WindowMemory for Area {
    fn len_bytes(&self) -> u64 {
        self.len as u64
    }

    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn load(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        let from = self.check(offset, bytes.len())?;
        // SAFETY:
        // 1. `check` has seen to it that the source lies within the window, which holds no Rust value.
        // 2. `bytes` is borrowed for writing.
        // 3. Where nothing is mapped, or the file has no page, the copy ends.
        all(unsafe { copy(bytes.as_mut_ptr(), from, bytes.len()) }, bytes.len())
    }

    fn store(&self, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let to = self.check(offset, bytes.len())?;
        // SAFETY: as in `load`, the other way round.
        all(unsafe { copy(to, bytes.as_ptr(), bytes.len()) }, bytes.len())
    }

    fn touch(&self, offset: u64) -> Result<(), Errno> {
        let at = self.check(offset, 1)?;
        // SAFETY: `check` has seen to it that the byte lies within the window, which holds no Rust value.
        if unsafe { touch(at) } { Ok(()) } else { Err(Errno::FAULT) }
    }

    fn make_synchronous(&self, offset: u64, len_bytes: u64) -> bool {
        if self.is_map_sync_off.load(Ordering::Relaxed) {
            return false;
        }
        self.map_sync(offset, len_bytes).unwrap_or_else(|error| {
            tracing::debug!(%error, offset, "a range is not mapped with MAP_SYNC");
            false
        })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: the reservation is this value's own, nothing refers into it, and it is removed once.
        let _ = unsafe { munmap(self.reserved.as_ptr(), self.reserved_len) };
    }
}

fn all(copied: usize, wanted: usize) -> Result<(), Errno> {
    if copied == wanted { Ok(()) } else { Err(Errno::FAULT) }
}

fn empty() -> MapFlags {
    MapFlags::PRIVATE | MapFlags::NORESERVE
}

/// Whether something is a multiple of the smallest page; where pages are larger, mmap(2) says so.
fn is_whole(number: u64) -> bool {
    number.is_multiple_of(PAGE_LEN as u64)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    fn file(len: u64) -> File {
        let file = tempfile::tempfile().unwrap();
        file.set_len(len).unwrap();
        file
    }

    #[test]
    fn what_a_daemon_maps_is_seen_and_ends_with_its_own_unmap_only() {
        let (area, file) = (Area::reserve(8 << 20).unwrap(), file(4 << 20));
        assert_eq!(area.start().addr().get() % ALIGNMENT as usize, 0);
        area.map(2 << 20, 2 << 20, &file, 0, true).unwrap();
        area.store((2 << 20) + 5, b"hello").unwrap();
        let mut seen = [0; 5];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut seen, 5).unwrap();
        assert_eq!(&seen, b"hello");
        assert!(area.unmap(2 << 20, 1 << 20).is_err());
        assert!(area.unmap(0, 2 << 20).is_err());
        area.unmap(2 << 20, 2 << 20).unwrap();
        assert_eq!(area.mappings(), 0);
    }

    #[test]
    fn overlaps_and_places_outside_are_refused() {
        let (area, file) = (Area::reserve(4 << 20).unwrap(), file(4 << 20));
        area.map(1 << 20, 2 << 20, &file, 0, false).unwrap();
        let all = [
            (0, 2 << 20, 0),
            (2 << 20, 2 << 20, 0),
            (0, 4 << 20, 0),
            (2 << 20, 4096, 0),
            (4 << 20, 4096, 0),
            (u64::MAX - 4095, 4096, 0),
            (0, u64::MAX, 0),
            (0, 0, 0),
            (1, 4096, 0),
            (0, 1, 0),
            (0, 4096, 1),
            (0, 4096, u64::MAX - 4095),
            (0, 4096, i64::MAX as u64 - 4095),
        ];
        for (offset, len, file_offset) in all {
            assert!(area.map(offset, len, &file, file_offset, false).is_err(), "{offset} {len} {file_offset}");
        }
        area.map(0, 1 << 20, &file, 0, false).unwrap();
        assert!(area.map(3 << 20, 1 << 20, &file, 0, false).is_err(), "more mappings than ranges");
        area.clear();
        assert_eq!(area.mappings(), 0);
    }

    #[test]
    fn a_copy_where_nothing_is_mapped_or_the_file_has_no_page_is_an_error() {
        let (area, file) = (Area::reserve(4 << 20).unwrap(), file(2 << 20));
        assert_eq!(area.load(0, &mut [0; 8]), Err(Errno::FAULT));
        area.map(0, 2 << 20, &file, 0, true).unwrap();
        assert_eq!(area.load(1 << 20, &mut [1; 8]), Ok(()));
        assert_eq!(area.load((2 << 20) - 4, &mut [1; 8]), Err(Errno::FAULT));
        file.set_len(1 << 20).unwrap();
        assert_eq!(area.load(1 << 20, &mut [1; 8]), Err(Errno::FAULT));
        assert_eq!(area.store(1 << 20, &[1; 8]), Err(Errno::FAULT));
        assert_eq!(area.load(0, &mut [1; 8]), Ok(()));
    }

    #[test]
    fn on_ordinary_storage_a_range_stays_as_it_is_mapped() {
        let (area, file) = (Area::reserve(4 << 20).unwrap(), file(2 << 20));
        area.map(2 << 20, 2 << 20, &file, 0, true).unwrap();
        area.store(2 << 20, b"here").unwrap();
        assert!(!area.make_synchronous(2 << 20, 2 << 20) && !area.make_synchronous(0, 2 << 20));
        // Even where it looks like the other kind.
        let kept = Arc::new(file.try_clone().unwrap().into());
        area.mappings.lock().get_mut(&(2 << 20)).unwrap().sync = MapSync::Possible(kept, 0);
        assert!(!area.make_synchronous(2 << 20, 2 << 20));
        assert_eq!(area.synchronous_mappings(), 0);
        let mut seen = [0; 4];
        area.load(2 << 20, &mut seen).unwrap();
        assert_eq!(&seen, b"here");
        area.touch(4 << 20).unwrap_err();
        area.touch((2 << 20) + 4095).unwrap();
    }

    #[test]
    fn nothing_is_loaded_once_the_daemon_is_gone() {
        let (area, file) = (Area::reserve(2 << 20).unwrap(), file(2 << 20));
        area.map(0, 2 << 20, &file, 0, true).unwrap();
        area.close();
        assert_eq!(area.load(0, &mut [0; 8]), Err(Errno::NOTCONN));
        assert_eq!(area.store(0, &[0; 8]), Err(Errno::NOTCONN));
        assert_eq!(area.load(u64::MAX, &mut [0; 8]), Err(Errno::NOTCONN));
    }
}
