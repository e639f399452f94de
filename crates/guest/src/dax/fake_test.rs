//! A file, its storage and page tables, as faults see them: for tests.

extern crate std;

use alloc::{boxed::Box, vec, vec::Vec};
use core::{
    cell::{Cell, RefCell},
    ops::Range,
    ptr::NonNull,
};
use std::collections::BTreeMap;

use parking_lot::Mutex;

use super::{
    RANGE_LEN,
    fault::{Backing, HOST_PAGE_LEN, Lent, LentPage, PagePart, View},
};
use crate::{
    Errno, Platform,
    platform::{Event, PageSize},
};

/// Number of the host's pages in 2 MiB. The tests call them blocks; pages are the guest's.
pub(super) const BLOCKS_PER_HUGE: u64 = RANGE_LEN / HOST_PAGE_LEN;
/// Maximum number of blocks of the file: three whole 2 MiB and a part, which ends within a page of 16 KiB or 64 KiB.
pub(super) const BLOCKS: u64 = 3 * BLOCKS_PER_HUGE + 41;

/// Defines a test for each size of pages from a function whose parameter is that size in KiB.
macro_rules! at_each_size {
    ($($name:ident)*) => {
        at_each_size!(@ kib4 4 $($name)*);
        at_each_size!(@ kib16 16 $($name)*);
        at_each_size!(@ kib64 64 $($name)*);
    };
    (@ $size:ident $kib:literal $($name:ident)*) => {
        mod $size {
            $(#[test] fn $name() { super::$name::<$kib>() })*
        }
    };
}
pub(super) use at_each_size;

/// A system with one thread and pages of `KIB` KiB.
pub(super) struct One<const KIB: u64>;

impl<const KIB: u64> One<KIB> {
    /// Number of pages in 2 MiB.
    pub(super) const HUGE: u64 = Self::PAGE_SIZE.pages_per_huge();
    /// Number of blocks in a page.
    pub(super) const BLOCKS: u64 = Self::PAGE_SIZE.bytes() / HOST_PAGE_LEN;
}

impl<const KIB: u64> Platform for One<KIB> {
    const PAGE_SIZE: PageSize = PageSize::from_bytes(KIB << 10).unwrap();

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

/// The file: contents of blocks by number, with holes absent. The memory of the 2 MiB with number i begins at an
/// address made from i.
pub(super) struct Disk {
    pub(super) contents: RefCell<BTreeMap<u64, u32>>,
    /// The known length, in bytes.
    pub(super) len_bytes: Cell<u64>,
    /// The real length, in bytes.
    pub(super) stored_len_bytes: Cell<u64>,
    /// Blocks with allocated storage, and whether the allocation survives a crash.
    pub(super) places: RefCell<BTreeMap<u64, bool>>,
    /// The length to which the file is truncated when a part of it is lent next.
    pub(super) cut_when_lent: Cell<Option<u64>>,
    pub(super) has_holes: bool,
    pub(super) is_unstable: bool,
}

impl Disk {
    pub(super) fn new(has_holes: bool, is_unstable: bool) -> Self {
        let (contents, places) = (RefCell::default(), RefCell::default());
        let len_bytes = Cell::new(BLOCKS * HOST_PAGE_LEN);
        Self {
            contents,
            stored_len_bytes: len_bytes.clone(),
            len_bytes,
            places,
            cut_when_lent: Cell::new(None),
            has_holes,
            is_unstable,
        }
    }

    /// Returns the number of blocks that the host has memory for.
    pub(super) fn blocks(&self) -> u64 {
        self.len_bytes.get().div_ceil(HOST_PAGE_LEN)
    }

    /// Makes every allocation durable.
    pub(super) fn sync(&self) {
        self.places.borrow_mut().values_mut().for_each(|is_durable| *is_durable = true);
    }

    pub(super) fn resize(&self, len_bytes: u64) {
        self.len_bytes.set(len_bytes);
        self.stored_len_bytes.set(len_bytes);
        self.contents.borrow_mut().split_off(&self.blocks());
        self.places.borrow_mut().split_off(&self.blocks());
    }

    /// Allocates storage for the block if it has no storage yet, as a store does.
    pub(super) fn store(&self, block: u64, value: u32) {
        assert!(block < self.blocks(), "a store that the machine does not survive");
        self.places.borrow_mut().entry(block).or_insert(false);
        self.contents.borrow_mut().insert(block, value);
    }

    /// Returns whether the file has nothing in the 2 MiB with this number.
    pub(super) fn is_hole(&self, index: u64) -> bool {
        let blocks = index * BLOCKS_PER_HUGE..(index + 1) * BLOCKS_PER_HUGE;
        self.contents.borrow().range(blocks).next().is_none()
    }
}

pub(super) struct At<'a>(u64, &'a Disk);

impl Lent for At<'_> {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(((self.0 + 1) * RANGE_LEN) as usize)).unwrap()
    }

    fn is_unstable(&self) -> bool {
        self.1.is_unstable
    }

    fn allocate(&self, bytes: Range<u64>) -> Result<(), Errno> {
        assert!((bytes.start | bytes.end) % HOST_PAGE_LEN == 0 && bytes.end <= RANGE_LEN, "{bytes:?}");
        let first = self.0 * BLOCKS_PER_HUGE;
        for block in bytes.start / HOST_PAGE_LEN..bytes.end / HOST_PAGE_LEN {
            if (first + block) * HOST_PAGE_LEN >= self.1.stored_len_bytes.get() {
                return Err(Errno::FAULT);
            }
            self.1.places.borrow_mut().entry(first + block).or_insert(false);
        }
        Ok(())
    }
}

impl Backing for Disk {
    type Lent<'a> = At<'a>;

    fn len_bytes(&self, _: u64) -> Result<u64, Errno> {
        Ok(self.known_len_bytes())
    }

    fn known_len_bytes(&self) -> u64 {
        self.len_bytes.get()
    }

    fn lend(&self, index: u64, is_write: bool) -> Result<LentPage<At<'_>>, Errno> {
        if let Some(len_bytes) = self.cut_when_lent.take() {
            self.resize(len_bytes);
        }
        if self.is_hole(index) {
            if self.has_holes && !is_write {
                return Ok(LentPage::Hole);
            }
            self.contents.borrow_mut().insert(index * BLOCKS_PER_HUGE, 0);
        }
        Ok(LentPage::Lent(At(index, self)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    Shared {
        page: u64,
        is_writable: bool,
    },
    Zero,
    /// By block. [`COPIED`] is what was copied.
    Copy(Vec<u32>),
}

/// Stands for the contents of a block in a new copy.
pub(super) const COPIED: u32 = u32::MAX;

pub(super) struct Table {
    size: PageSize,
    pub(super) entries: Mutex<BTreeMap<u64, Entry>>,
    allows_beyond_end: bool,
}

impl Table {
    pub(super) fn new(size: PageSize, allows_beyond_end: bool) -> Self {
        Self { size, entries: Mutex::default(), allows_beyond_end }
    }

    fn put(&self, pages: Range<u64>, entry: impl Fn(u64) -> Entry) {
        let mut entries = self.entries.lock();
        for page in pages {
            let slot = entries.entry(page).or_insert(Entry::Zero);
            if !matches!(slot, Entry::Copy(_)) {
                *slot = entry(page);
            }
        }
    }

    /// Returns the page of the file whose memory begins at `start`.
    fn page_at(&self, start: NonNull<u8>) -> u64 {
        let address = start.as_ptr() as u64 - RANGE_LEN;
        assert_eq!(address % self.size.bytes(), 0);
        address / self.size.bytes()
    }

    fn blocks(&self) -> u64 {
        self.size.bytes() / HOST_PAGE_LEN
    }

    /// Returns whether a block may be stored to.
    pub(super) fn is_writable(&self, block: u64) -> bool {
        let page = block / self.blocks();
        matches!(self.entries.lock().get(&page), Some(Entry::Shared { is_writable: true, .. }))
    }

    /// Returns the contents that a load finds in a block, or `None` for a fault.
    pub(super) fn load(&self, block: u64, disk: &Disk) -> Option<u32> {
        let page = block / self.blocks();
        Some(match self.entries.lock().get(&page)? {
            Entry::Shared { page: at, .. } => {
                assert_eq!(*at, page, "the page of another place");
                assert!(block < disk.blocks(), "a load that the machine does not survive");
                disk.contents.borrow().get(&block).copied().unwrap_or(0)
            }
            Entry::Zero => 0,
            Entry::Copy(values) => values[(block % self.blocks()) as usize],
        })
    }
}

impl View for Table {
    fn install(&self, pages: Range<u64>, from: NonNull<u8>, is_writable: bool) -> Result<(), Errno> {
        let first = self.page_at(from);
        self.put(pages.clone(), |page| Entry::Shared { page: first + page - pages.start, is_writable });
        Ok(())
    }

    fn install_zeros(&self, pages: Range<u64>) -> Result<(), Errno> {
        self.put(pages, |_| Entry::Zero);
        Ok(())
    }

    fn install_copy(&self, page: u64, from: Option<PagePart>) -> Result<(), Errno> {
        let mut values = vec![0; self.blocks() as usize];
        if let Some(PagePart { start, len_bytes }) = from {
            assert_eq!((self.page_at(start), len_bytes % HOST_PAGE_LEN as usize), (page, 0));
            values[..len_bytes / HOST_PAGE_LEN as usize].fill(COPIED);
        }
        self.entries.lock().insert(page, Entry::Copy(values));
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
