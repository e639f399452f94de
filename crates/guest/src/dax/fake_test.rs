//! A file, its storage and page tables, as faults see them: for tests.

extern crate std;

use alloc::boxed::Box;
use core::{cell::RefCell, ops::Range, ptr::NonNull};
use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{
    entry::{Order, PAGE_LEN, PAGES_PER_HUGE},
    fault::{Backing, Lent, LentPage, View},
};
use crate::{Errno, Platform, platform::Event};

/// Maximum number of pages of the file: three whole 2 MiB and a part.
pub(super) const PAGES: u64 = 3 * PAGES_PER_HUGE + 40;

pub(super) struct One;

impl Platform for One {
    type RawMutex = parking_lot::RawMutex;
    type Event = Alone;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

/// No other thread exists to wake the caller.
#[derive(Default)]
pub(super) struct Alone;

impl Event for Alone {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        assert!(is_done(), "somebody waits, alone");
        true
    }

    fn wake_all(&self) {}
}

/// The file: page contents by number, with holes absent. The memory of the 2 MiB with number i begins at an address
/// made from i.
pub(super) struct Disk {
    pub(super) contents: RefCell<BTreeMap<u64, u32>>,
    pub(super) pages: RefCell<u64>,
    /// Pages with allocated storage, and whether the allocation survives a crash.
    pub(super) places: RefCell<BTreeMap<u64, bool>>,
    /// The real length of the file; [`Self::pages`] is the known length.
    pub(super) stored_pages: RefCell<u64>,
    pub(super) has_holes: bool,
    pub(super) is_unstable: bool,
}

impl Disk {
    pub(super) fn new(has_holes: bool, is_unstable: bool) -> Self {
        let (contents, places) = (RefCell::default(), RefCell::default());
        Self { contents, pages: RefCell::new(PAGES), stored_pages: RefCell::new(PAGES), places, has_holes, is_unstable }
    }

    /// Makes every allocation durable.
    pub(super) fn sync(&self) {
        self.places.borrow_mut().values_mut().for_each(|is_durable| *is_durable = true);
    }

    pub(super) fn resize(&self, pages: u64) {
        *self.pages.borrow_mut() = pages;
        *self.stored_pages.borrow_mut() = pages;
        self.contents.borrow_mut().split_off(&pages);
        self.places.borrow_mut().split_off(&pages);
    }

    /// Allocates storage for the page if it has no storage yet, as a store does.
    pub(super) fn store(&self, page: u64, value: u32) {
        self.places.borrow_mut().entry(page).or_insert(false);
        self.contents.borrow_mut().insert(page, value);
    }
}

pub(super) struct At<'a>(u64, &'a Disk);

impl Lent for At<'_> {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(((self.0 + 1) * super::RANGE_LEN) as usize)).unwrap()
    }

    fn is_unstable(&self) -> bool {
        self.1.is_unstable
    }

    fn allocate(&self, pages: Range<u64>) -> Result<(), Errno> {
        let first = self.0 * PAGES_PER_HUGE;
        for page in pages {
            if first + page >= *self.1.stored_pages.borrow() {
                return Err(Errno::FAULT);
            }
            self.1.places.borrow_mut().entry(first + page).or_insert(false);
        }
        Ok(())
    }
}

fn page_at(address: usize) -> u64 {
    assert_eq!(address as u64 % PAGE_LEN, 0);
    (address as u64 - super::RANGE_LEN) / PAGE_LEN
}

impl Backing for Disk {
    type Lent<'a> = At<'a>;

    fn len_bytes(&self, _: u64) -> Result<u64, Errno> {
        Ok(self.known_len_bytes())
    }

    fn known_len_bytes(&self) -> u64 {
        *self.pages.borrow() * PAGE_LEN
    }

    fn lend(&self, index: u64, is_write: bool) -> Result<LentPage<At<'_>>, Errno> {
        let pages = Order::Huge.pages(index * PAGES_PER_HUGE);
        let mut contents = self.contents.borrow_mut();
        let is_hole = contents.range(pages.clone()).next().is_none();
        if self.has_holes && is_hole && !is_write {
            return Ok(LentPage::Hole);
        }
        if is_hole {
            contents.insert(pages.start, 0);
        }
        Ok(LentPage::Lent(At(index, self)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entry {
    Shared { page: u64, is_writable: bool },
    Zero,
    Copy(u32),
}

#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: Mutex<BTreeMap<u64, Entry>>,
    pub(super) allows_beyond_end: bool,
}

impl Table {
    fn put(&self, pages: Range<u64>, entry: impl Fn(u64) -> Entry) {
        let mut entries = self.entries.lock();
        for page in pages {
            let slot = entries.entry(page).or_insert(Entry::Zero);
            if !matches!(slot, Entry::Copy(_)) {
                *slot = entry(page);
            }
        }
    }

    pub(super) fn is_writable(&self, page: u64) -> bool {
        matches!(self.entries.lock().get(&page), Some(Entry::Shared { is_writable: true, .. }))
    }

    /// Returns the contents that a load finds, or `None` for a fault.
    pub(super) fn load(&self, page: u64, disk: &Disk) -> Option<u32> {
        Some(match *self.entries.lock().get(&page)? {
            Entry::Shared { page: at, .. } => {
                assert_eq!(at, page, "the page of another place");
                disk.contents.borrow().get(&page).copied().unwrap_or(0)
            }
            Entry::Zero => 0,
            Entry::Copy(value) => value,
        })
    }
}

impl View for Table {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        let first = page_at(from.as_ptr() as usize);
        self.put(pages.clone(), |page| Entry::Shared { page: first + page - pages.start, is_writable });
        Ok(())
    }

    fn install_zeros(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.put(pages, |_| Entry::Zero);
        Ok(())
    }

    fn install_copy(&self, page: u64, from: Option<NonNull<u8>>) -> Result<(), Errno> {
        if let Some(from) = from {
            assert_eq!(page_at(from.as_ptr() as usize), page);
        }
        self.entries.lock().insert(page, Entry::Copy(u32::MAX));
        Ok(())
    }

    fn zap(&self, pages: Range<u64>, with_copies: bool) {
        self.entries
            .lock()
            .retain(|page, entry| !pages.contains(page) || (matches!(entry, Entry::Copy(_)) && !with_copies));
    }

    fn write_protect(&self, pages: Range<u64>) {
        for (_, entry) in self.entries.lock().range_mut(pages) {
            if let Entry::Shared { is_writable, .. } = entry {
                *is_writable = false;
            }
        }
    }

    fn allows_beyond_end(&self) -> bool {
        self.allows_beyond_end
    }
}
