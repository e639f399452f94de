//! What the size of a page decides: the end of a file, marks of stores, and private copies.

use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;

use super::{
    Change, PageTables as _,
    entry::Order,
    fake_test::{COPIED, Disk, Entry, One, Table, at_each_size},
    fault::{Fault, FaultOutcome, HOST_PAGE_LEN, Intent, View},
    mapped::Mapped,
};
use crate::Platform as _;

at_each_size! {
    the_last_page_is_mapped_if_the_host_has_all_of_it
    the_last_page_is_not_mapped_if_the_host_has_only_a_part_of_it
    a_copy_of_the_last_page_has_its_bytes_and_then_zeros
    a_page_in_which_the_file_ends_is_taken_out_and_stays_marked
    a_store_marks_one_page
    a_store_through_a_large_entry_marks_its_pages
    two_mebibytes_in_which_the_file_ends_are_mapped_by_pages
    releasing_two_mebibytes_removes_their_entries_and_no_others
    two_mebibytes_that_are_cut_before_they_are_lent_are_mapped_by_pages
}

struct World<const KIB: u64> {
    disk: Disk,
    mapped: Mapped<One<KIB>>,
    view: Arc<Table>,
}

impl<const KIB: u64> World<KIB> {
    const PAGE_LEN: u64 = One::<KIB>::PAGE_SIZE.bytes();

    /// A file of `len_bytes` and one mapping of it, which does not survive an access beyond the end.
    fn new(len_bytes: u64) -> Self {
        Self::with(len_bytes, false)
    }

    fn with(len_bytes: u64, allows_beyond_end: bool) -> Self {
        let (disk, mapped) = (Disk::new(false, false), Mapped::default());
        disk.resize(len_bytes);
        let view = Arc::new(Table::new(One::<KIB>::PAGE_SIZE, allows_beyond_end));
        mapped.attach(Arc::clone(&view) as Arc<dyn View>);
        Self { disk, mapped, view }
    }

    fn fault(&self, page: u64, order: Order, intent: Intent) -> FaultOutcome {
        self.mapped.fault(&self.disk, &*self.view, Fault { page, order, intent })
    }

    fn install(&self, page: u64, order: Order, intent: Intent) {
        assert_eq!(self.fault(page, order, intent), FaultOutcome::Installed, "page {page}");
    }

    /// Truncates the file, as an inode does.
    fn cut(&self, len_bytes: u64) {
        self.mapped.revoke(len_bytes..u64::MAX, true);
        self.disk.resize(len_bytes);
        self.mapped.changed(Change::Cut { len_bytes });
    }

    /// Returns the pages that are passed to a flush of everything.
    fn flushed(&self) -> Vec<Range<u64>> {
        let mut flushed = Vec::new();
        let flush = |pages| {
            flushed.push(pages);
            Ok(())
        };
        self.mapped.write_back(0..u64::MAX, flush).unwrap();
        flushed
    }

    fn entry(&self, page: u64) -> Option<Entry> {
        self.view.entries.lock().get(&page).cloned()
    }
}

fn pages(start: u64, end: u64) -> Range<u64> {
    start..end
}

const ACCESSES: [Intent; 2] = [Intent::Load, Intent::Store];

fn the_last_page_is_mapped_if_the_host_has_all_of_it<const KIB: u64>() {
    let page_len = World::<KIB>::PAGE_LEN;
    // To the last byte, and into the host's last page of it.
    for len_bytes in [3 * page_len, 3 * page_len - HOST_PAGE_LEN + 1] {
        for intent in ACCESSES {
            let world = World::<KIB>::new(len_bytes);
            world.install(2, Order::Small, intent);
            assert_eq!(world.fault(3, Order::Small, intent), FaultOutcome::OutOfFile);
        }
    }
}

fn the_last_page_is_not_mapped_if_the_host_has_only_a_part_of_it<const KIB: u64>() {
    let page_len = World::<KIB>::PAGE_LEN;
    let partial = if KIB == 4 { FaultOutcome::Installed } else { FaultOutcome::PartialPage };
    for intent in ACCESSES {
        let world = World::<KIB>::new(2 * page_len + 1);
        assert_eq!(world.fault(2, Order::Small, intent), partial, "{intent:?}");
        assert_eq!(world.entry(2).is_some(), KIB == 4);
        world.install(1, Order::Small, intent);
        // Nothing is lost to a file that has grown since.
        world.disk.resize(3 * page_len);
        world.install(2, Order::Small, intent);
        // A mapping that survives accesses beyond the end has the page.
        World::<KIB>::with(2 * page_len + 1, true).install(2, Order::Small, intent);
    }
}

fn a_copy_of_the_last_page_has_its_bytes_and_then_zeros<const KIB: u64>() {
    let blocks = One::<KIB>::BLOCKS;
    for there in 1..=blocks {
        for allows_beyond_end in [false, true] {
            let len_bytes = 2 * World::<KIB>::PAGE_LEN + there * HOST_PAGE_LEN - 7;
            let world = World::<KIB>::with(len_bytes, allows_beyond_end);
            world.install(2, Order::Huge, Intent::Copy);
            let expected = (0..blocks).map(|block| if block < there { COPIED } else { 0 }).collect();
            assert_eq!(world.entry(2), Some(Entry::Copy(expected)), "{there} of {blocks}");
        }
    }
}

fn a_page_in_which_the_file_ends_is_taken_out_and_stays_marked<const KIB: u64>() {
    let page_len = World::<KIB>::PAGE_LEN;
    let world = World::<KIB>::new(8 * page_len);
    [3, 4].into_iter().for_each(|page| world.install(page, Order::Small, Intent::Store));
    let private = Arc::new(Table::new(One::<KIB>::PAGE_SIZE, false));
    world.mapped.attach(Arc::clone(&private) as Arc<dyn View>);
    for page in [3, 4] {
        let fault = Fault { page, order: Order::Small, intent: Intent::Copy };
        assert_eq!(world.mapped.fault(&world.disk, &*private, fault), FaultOutcome::Installed);
    }
    world.cut(3 * page_len + page_len / 2 - 1);
    assert_eq!([3, 4].map(|page| world.entry(page)), [None, None]);
    assert_eq!(private.entries.lock().keys().copied().collect::<Vec<_>>(), [3], "the copy of the page that is left");
    assert_eq!(world.flushed(), [pages(3, 4)]);
    let left = if KIB == 4 { FaultOutcome::Installed } else { FaultOutcome::PartialPage };
    assert_eq!(world.fault(3, Order::Small, Intent::Store), left);
    assert_eq!(world.fault(4, Order::Small, Intent::Store), FaultOutcome::OutOfFile);
}

fn a_store_marks_one_page<const KIB: u64>() {
    let world = World::<KIB>::new(super::RANGE_LEN * 2);
    let (last, other) = (One::<KIB>::HUGE - 1, One::<KIB>::HUGE + 5);
    for page in [7, last, other] {
        world.install(page, Order::Small, Intent::Store);
    }
    world.install(8, Order::Small, Intent::Load);
    assert_eq!(world.flushed(), [7..8, last..last + 1, other..other + 1]);
    // All of the page faults at the next store, and only that marks it again.
    assert!((7 * One::<KIB>::BLOCKS..8 * One::<KIB>::BLOCKS).all(|block| !world.view.is_writable(block)));
    assert!(world.flushed().is_empty());
    world.install(7, Order::Small, Intent::Store);
    assert_eq!(world.flushed(), [pages(7, 8)]);
}

fn a_store_through_a_large_entry_marks_its_pages<const KIB: u64>() {
    let (huge, world) = (One::<KIB>::HUGE, World::<KIB>::new(super::RANGE_LEN * 2));
    world.install(huge + 3, Order::Huge, Intent::Store);
    assert_eq!(world.view.entries.lock().keys().copied().collect::<Vec<_>>(), (huge..2 * huge).collect::<Vec<_>>());
    assert_eq!(world.flushed(), [pages(huge, 2 * huge)]);
}

fn two_mebibytes_in_which_the_file_ends_are_mapped_by_pages<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let world = World::<KIB>::new(super::RANGE_LEN * 2 - HOST_PAGE_LEN);
    world.install(3, Order::Huge, Intent::Load);
    assert_eq!(world.fault(huge, Order::Huge, Intent::Load), FaultOutcome::FallBack);
    world.install(huge, Order::Small, Intent::Load);
    assert_eq!(world.view.entries.lock().len() as u64, huge + 1);
}

fn two_mebibytes_that_are_cut_before_they_are_lent_are_mapped_by_pages<const KIB: u64>() {
    let world = World::<KIB>::new(super::RANGE_LEN);
    world.disk.cut_when_lent.set(Some(2 * World::<KIB>::PAGE_LEN));
    assert_eq!(world.fault(1, Order::Huge, Intent::Load), FaultOutcome::FallBack);
    world.disk.resize(super::RANGE_LEN);
    world.disk.cut_when_lent.set(Some(World::<KIB>::PAGE_LEN));
    assert_eq!(world.fault(1, Order::Huge, Intent::Load), FaultOutcome::OutOfFile);
    assert!(world.view.entries.lock().is_empty());
}

fn releasing_two_mebibytes_removes_their_entries_and_no_others<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let world = World::<KIB>::new(3 * huge * World::<KIB>::PAGE_LEN);
    for index in [1, 2, 0] {
        for page in [3, huge + 3, 2 * huge + 3] {
            world.install(page, Order::Small, Intent::Store);
        }
        // What was used since the last look is left alone once.
        assert!((0..2).any(|_| world.mapped.release(index)));
        for other in 0..3 {
            assert_eq!(world.entry(other * huge + 3).is_none(), other == index, "{other} after {index}");
        }
        // Nothing is there to release, and what was stored still has to be flushed.
        assert!(world.mapped.release(index));
    }
    assert_eq!(world.flushed(), [3..4, huge + 3..huge + 4, 2 * huge + 3..2 * huge + 4]);
}
