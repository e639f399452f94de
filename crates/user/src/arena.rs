//! The memory that the process shares with the daemon, as a virtual machine shares its RAM.
//!
//! An [`Arena`] is a sealed memfd, so that neither side can remove pages that the other uses. The daemon addresses its
//! bytes from [`BASE`]. The guest's DMA operations allocate from it.

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

/// Start of the arena in the device's address space. Not 0, which back ends may treat as "none".
const BASE: u64 = 1 << 32;
/// The arena is a multiple of a huge page, so that the kernel can use huge pages.
const GRANULE: usize = 2 << 20;
/// Default length: enough for the contents cached by default, and half as much again for requests. Pages that are never
/// touched use no memory.
pub const LEN_BYTES_DEFAULT: usize = 192 << 20;

/// Memory that both sides can access.
#[derive(Debug)]
pub struct Arena {
    region: GuestRegionMmap<()>,
    /// Whether a device has it as its pool.
    is_taken: AtomicBool,
}

impl Arena {
    /// Creates an arena of at least `len_bytes`, filled with zeros.
    ///
    /// # Errors
    ///
    /// Returns the errors of memfd_create(2), ftruncate(2), fcntl(2) and mmap(2).
    pub fn new(len_bytes: usize) -> io::Result<Self> {
        let len_bytes = len_bytes.max(1).checked_next_multiple_of(GRANULE).ok_or(io::ErrorKind::InvalidInput)?;
        let file = File::from(memfd_create("transom-arena", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        ftruncate(&file, len_bytes as u64)?;
        // The other side has the file too; if it could shorten it, an access here would raise SIGBUS.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let mapping = MmapRegion::from_file(FileOffset::new(file, 0), len_bytes).map_err(io::Error::other)?;
        advise_huge_pages(&mapping);
        let region = GuestRegionMmap::new(mapping, GuestAddress(BASE)).ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self { region, is_taken: AtomicBool::new(false) })
    }

    /// Returns the arena as an entry of the memory table.
    pub(crate) fn region(&self) -> &GuestRegionMmap<()> {
        &self.region
    }

    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        self.region.size()
    }

    /// Returns the address in this process of the byte that the device finds at `address`, or `None` if it lies outside
    /// the arena.
    pub(crate) fn user_address(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(BASE).filter(|&offset| offset < self.region.len())?;
        Some(self.region.as_ptr() as u64 + offset)
    }

    /// Returns the whole arena as the pool of one device; the pool keeps the arena alive.
    ///
    /// # Panics
    ///
    /// Panics if called twice, because two pools would hand out the same bytes.
    pub fn pool(self: &Arc<Self>, when_full: WhenFull) -> Bounce<Process> {
        self.pool_and_rest(self.len_bytes(), when_full).0
    }

    /// Returns the first `pool_len_bytes`, a multiple of the page size, as [`Self::pool`] does, and the rest of the
    /// arena as plain memory, filled with zeros. Each part keeps the arena alive.
    ///
    /// # Panics
    ///
    /// Panics if the arena is shorter than `pool_len_bytes`, or if called twice.
    pub fn pool_and_rest(self: &Arc<Self>, pool_len_bytes: usize, when_full: WhenFull) -> (Bounce<Process>, DmaMemory) {
        assert!(!self.is_taken.swap(true, Ordering::Relaxed), "an arena is the pool of one device");
        let rest_len_bytes = self.len_bytes().checked_sub(pool_len_bytes).expect("the pool lies within the arena");
        let start = NonNull::new(self.region.as_ptr()).expect("mmap(2) returns no null pointer");
        // SAFETY:
        // 1. `start` is a multiple of the page size, and with it of 8; `pool_len_bytes` is one too.
        // 2. The mapping is readable and writable, and lives as long as `self`, which both the pool and the rest keep
        //    as their owner.
        // 3. Nothing here accesses the bytes, and `is_taken` ensures that they are handed out once. The two parts do
        //    not overlap.
        let (pool, rest) = unsafe {
            let behind = start.add(pool_len_bytes);
            let rest = DmaMemory::new(behind, rest_len_bytes, BASE + pool_len_bytes as u64);
            (DmaMemory::new(start, pool_len_bytes, BASE), rest)
        };
        let owner = Arc::clone(self) as Arc<dyn Send + Sync>;
        (Bounce::owning(Arc::new(Process), pool, when_full, owner), rest)
    }
}

/// Asks for huge pages. A kernel without huge pages for shared memory works as well, only with slower copies.
fn advise_huge_pages(mapping: &MmapRegion<()>) {
    // SAFETY: the range is the mapping itself, and the advice changes nothing that a program can see.
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
