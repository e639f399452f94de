//! The memory that the process and the daemon share: what RAM is to a virtual machine.
//!
//! A sealed memfd, so that neither side can take pages from under the other; `address` is where the daemon finds a
//! byte, counted from [`BASE`]. The guest's DMA operations hand the memory out.

#![expect(unsafe_code, reason = "memory shared with a device is given to the guest library as a pointer")]

use std::{
    fs::File,
    io,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use transom_guest::dma::{Bounce, DmaMemory, WhenFull};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryRegion as _, GuestRegionMmap, MmapRegion};

use crate::platform::Process;

/// Where the arena begins in the device's address space. Not 0, which back ends may take for "none".
const BASE: u64 = 1 << 32;
/// The arena is a multiple of a huge page, so that the kernel can use those.
const GRANULE: usize = 2 << 20;
/// What a mount takes unless told otherwise: the contents that are kept by default, and half of it for requests. Pages
/// are only used once touched.
pub const LEN_BYTES_DEFAULT: usize = 192 << 20;

/// A piece of memory that both sides reach.
#[derive(Debug)]
pub struct Arena {
    region: GuestRegionMmap<()>,
    /// It is some device's pool.
    is_taken: AtomicBool,
}

impl Arena {
    /// At least `len_bytes` of zeros.
    ///
    /// Errors: what memfd_create(2), ftruncate(2), fcntl(2) and mmap(2) say.
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        let len_bytes = len_bytes.max(1).checked_next_multiple_of(GRANULE).ok_or(io::ErrorKind::InvalidInput)?;
        let file = File::from(memfd_create("transom-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&file, len_bytes as u64)?;
        // The other side has the file too: a byte of it that went away would be a SIGBUS here.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), len_bytes).map_err(io::Error::other)?;
        advise_huge_pages(&mapping);
        let region = GuestRegionMmap::new(mapping, GuestAddress(BASE)).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { region, is_taken: AtomicBool::new(false) })
    }

    /// As an entry of the memory table.
    pub(crate) fn region(&self) -> &GuestRegionMmap<()> {
        &self.region
    }

    /// In bytes.
    pub fn len_bytes(&self) -> usize {
        self.region.size()
    }

    /// Where in this process the byte lies that the device finds at `address`; nothing for one outside.
    pub(crate) fn user_address(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(BASE).filter(|&offset| offset < self.region.len())?;
        Some(self.region.as_ptr() as u64 + offset)
    }

    /// All of it as the pool of one device, which keeps the arena.
    ///
    /// Panics when called again: two pools would give the same bytes away.
    pub fn pool(self: &Arc<Self>, when_full: WhenFull) -> Bounce<Process> {
        self.pool_and_rest(self.len_bytes(), when_full).0
    }

    /// The first `pool_len_bytes`, a multiple of the page size, as [`Self::pool`]; and what lies behind them as it is:
    /// zeros, whose pages are only used once touched. Who has the rest keeps the arena.
    ///
    /// Panics where the arena is shorter, and when called again.
    pub fn pool_and_rest(self: &Arc<Self>, pool_len_bytes: usize, when_full: WhenFull) -> (Bounce<Process>, DmaMemory) {
        assert!(!self.is_taken.swap(true, Ordering::Relaxed), "an arena is the pool of one device");
        let rest_len_bytes = self.len_bytes().checked_sub(pool_len_bytes).expect("the pool lies within the arena");
        let start = NonNull::new(self.region.as_ptr()).expect("mmap(2) gives no null pointer");
        // SAFETY:
        // 1. `start` is a multiple of the page size, and with it of 8; `pool_len_bytes` is one too.
        // 2. The mapping is readable and writable, and ends with `self`, which the pool keeps as its owner, and who has
        //    the rest.
        // 3. Nothing here uses the bytes, and they are given away once: `is_taken`. The two parts do not overlap.
        let (pool, rest) = unsafe {
            let behind = start.add(pool_len_bytes);
            let rest = DmaMemory::new(behind, rest_len_bytes, BASE + pool_len_bytes as u64);
            (DmaMemory::new(start, pool_len_bytes, BASE), rest)
        };
        let owner = Arc::clone(self) as Arc<dyn Send + Sync>;
        (Bounce::owning(Arc::new(Process), pool, when_full, owner), rest)
    }
}

/// Asks for huge pages; a kernel that gives none for shared memory is as right, and slower in copies.
fn advise_huge_pages(mapping: &MmapRegion<()>) {
    // SAFETY: the range is the mapping's own, and the advice changes nothing that a program can see.
    let advised =
        unsafe { rustix::mm::madvise(mapping.as_ptr().cast(), mapping.size(), rustix::mm::Advice::LinuxHugepage) };
    if let Err(error) = advised {
        tracing::debug!(%error, "no huge pages for the arena");
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::fcntl_get_seals;

    use super::*;

    #[test]
    fn neither_side_can_shorten_or_lengthen_the_arena() {
        let arena = Arena::new(1).unwrap();
        assert_eq!(arena.len_bytes(), GRANULE);
        let file = arena.region.file_offset().unwrap().file();
        assert!(ftruncate(file, 4096).is_err());
        assert!(ftruncate(file, 2 * GRANULE as u64).is_err());
        assert!(fcntl_get_seals(file).unwrap().contains(SealFlags::SEAL));
    }

    #[test]
    fn addresses_outside_the_arena_have_no_place_in_the_process() {
        let arena = Arena::new(GRANULE).unwrap();
        assert_eq!(arena.user_address(BASE - 1), None);
        assert_eq!(arena.user_address(0), None);
        assert_eq!(arena.user_address(BASE + GRANULE as u64), None);
        let start = arena.region.as_ptr() as u64;
        assert_eq!(arena.user_address(BASE + 4096), Some(start + 4096));
    }
}
