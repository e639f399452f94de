//! One mapping's part of Hermit's page tables.
//!
//! All entries are of 4 KiB: where Hermit's `unmap` removes a larger one on riscv64, it leaves a pointer to a table.

use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use core::ptr::NonNull;

use hermit_sync::InterruptTicketMutex;
use memory_addresses::{PhysAddr, VirtAddr};
use transom_guest::Errno;
use transom_guest::dax::fault::{PagePart, View};

use super::memory::{self, PAGE_LEN};
use crate::arch::mm::paging::{self, BasePageSize};

/// The page tables of one mapping.
pub(super) struct Pages {
    start: VirtAddr,
    /// The physical address of each page, 0 for one that is not mapped: on riscv64, Hermit has no way to look it up.
    installed: InterruptTicketMutex<Vec<u64>>,
    count: usize,
}

impl Pages {
    pub(super) fn new(start: VirtAddr, count: usize) -> Self {
        let installed = InterruptTicketMutex::new(vec![0; count]);
        Self { start, installed, count }
    }

    pub(super) fn contains(&self, address: VirtAddr) -> bool {
        address >= self.start && address < self.at(self.count)
    }

    pub(super) fn start(&self) -> VirtAddr {
        self.start
    }

    pub(super) fn len_bytes(&self) -> usize {
        self.count * PAGE_LEN
    }

    fn at(&self, page: usize) -> VirtAddr {
        self.start + (page * PAGE_LEN) as u64
    }

    /// Returns the part of `pages` within the mapping.
    fn within(&self, pages: &Range<u64>) -> Range<usize> {
        let of = |page: u64| usize::try_from(page).unwrap_or(usize::MAX).min(self.count);
        of(pages.start)..of(pages.end)
    }

    fn enter(&self, page: usize, physical: u64, is_writable: bool) {
        let flags = memory::memory_flags(is_writable);
        paging::map::<BasePageSize>(self.at(page), PhysAddr::new(physical), 1, flags);
    }
}

impl View for Pages {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        // The window's pages are contiguous.
        let first = memory::physical(from).ok_or(Errno::FAULT)?;
        let mut installed = self.installed.lock();
        for page in self.within(&pages) {
            let physical = first + (page as u64 - pages.start) * PAGE_LEN as u64;
            installed[page] = physical;
            self.enter(page, physical, is_writable);
        }
        Ok(())
    }

    /// The backing has no holes: every page of the file has a place in the window.
    fn install_zeros(&self, _pages: Range<u64>) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    /// There are no private mappings.
    fn install_copy(&self, _page: u64, _from: Option<PagePart>) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn zap(&self, pages: Range<u64>, _with_copies: bool) {
        let mut installed = self.installed.lock();
        for page in self.within(&pages) {
            if mem::take(&mut installed[page]) != 0 {
                paging::unmap::<BasePageSize>(self.at(page), 1);
            }
        }
    }

    fn write_protect(&self, pages: Range<u64>) {
        let installed = self.installed.lock();
        for page in self.within(&pages).filter(|&page| installed[page] != 0) {
            self.enter(page, installed[page], false);
        }
    }

    fn allows_beyond_end(&self) -> bool {
        // An access past the end may end the machine: the front end's memory has no page there.
        false
    }
}
