//! Durable stores: what is made durable before a page may be stored to, and what happens if that fails.

use alloc::sync::Arc;
use core::ops::Range;

use super::{
    PageTables as _,
    entry::Order,
    fake_test::{BLOCKS, BLOCKS_PER_HUGE, Disk, One, Table, at_each_size},
    fault::{Fault, FaultOutcome, HOST_PAGE_LEN, Intent, View},
    mapped::Mapped,
};
use crate::{Errno, Platform as _};

struct World<const KIB: u64> {
    disk: Disk,
    mapped: Mapped<One<KIB>>,
    view: Arc<Table>,
}

impl<const KIB: u64> World<KIB> {
    fn new() -> Self {
        Self::over(Disk::new(false, true), false)
    }

    fn over(disk: Disk, allows_beyond_end: bool) -> Self {
        let (mapped, view) = (Mapped::default(), Arc::new(Table::new(One::<KIB>::PAGE_SIZE, allows_beyond_end)));
        mapped.attach(Arc::clone(&view) as Arc<dyn View>);
        Self { disk, mapped, view }
    }

    fn fault(
        &self,
        page: u64,
        order: Order,
        intent: Intent,
        sync: impl FnOnce(Range<u64>) -> Result<(), Errno>,
    ) -> FaultOutcome {
        self.mapped.fault_through(&self.disk, &*self.view, Fault { page, order, intent }, sync)
    }

    /// Makes a durable store that nothing disturbs. Returns the pages that were made durable.
    fn store(&self, page: u64, order: Order) -> Option<Range<u64>> {
        let mut synced = None;
        let outcome = self.fault(page, order, Intent::StoreSync, |pages| {
            self.disk.sync();
            synced = Some(pages);
            Ok(())
        });
        assert_eq!(outcome, FaultOutcome::Installed);
        synced
    }

    /// Returns whether stores to the page are permitted.
    fn is_writable(&self, page: u64) -> bool {
        self.view.is_writable(page * One::<KIB>::BLOCKS)
    }

    /// Returns whether all of the page has storage, or none of it, and whether that survives.
    fn place(&self, page: u64) -> Option<bool> {
        let places = self.disk.places.borrow();
        let mut blocks = (page * One::<KIB>::BLOCKS..(page + 1) * One::<KIB>::BLOCKS).map(|block| places.get(&block));
        let first = blocks.next().unwrap();
        assert!(blocks.all(|place| place == first), "a part of page {page} has its place");
        first.copied()
    }

    fn is_durable(&self, page: u64) -> bool {
        self.place(page) == Some(true)
    }

    /// Truncates the file to nothing, and extends it again to its old length.
    fn cut(&self) {
        let before = self.disk.len_bytes.get();
        self.mapped.revoke(0..u64::MAX / 2, true);
        self.disk.resize(0);
        self.disk.resize(before);
    }
}

at_each_size! {
    a_page_has_its_place_before_the_sync_and_may_be_stored_to_after_it
    one_sync_serves_two_mebibytes
    a_page_of_any_two_mebibytes_is_mapped_at_its_place_after_the_sync
    an_error_of_the_sync_is_the_faults_and_nothing_may_be_stored
    a_page_that_is_cut_off_during_the_sync_is_faulted_again
    an_entry_that_another_fault_has_made_since_is_not_taken_for_the_synced_one
    nothing_beyond_the_end_of_the_file_may_be_stored_to_before_it_is_made_durable
    a_file_that_is_shorter_than_it_was_known_to_be_has_its_pages_stored_to_one_by_one
    where_the_system_below_waits_itself_nothing_is_synced
}

fn a_page_has_its_place_before_the_sync_and_may_be_stored_to_after_it<const KIB: u64>() {
    let world = World::<KIB>::new();
    let outcome = world.fault(7, Order::Small, Intent::StoreSync, |pages| {
        assert_eq!(pages, 7..8);
        assert_eq!(world.place(7), Some(false));
        assert!(!world.is_writable(7));
        world.disk.sync();
        Ok(())
    });
    assert_eq!(outcome, FaultOutcome::Installed);
    assert!(world.is_writable(7) && !world.is_writable(8));
}

fn one_sync_serves_two_mebibytes<const KIB: u64>() {
    let world = World::<KIB>::new();
    let huge = One::<KIB>::HUGE;
    assert_eq!(world.store(huge + 3, Order::Huge), Some(huge..2 * huge));
    assert!((huge..2 * huge).all(|page| world.is_writable(page) && world.is_durable(page)));
    // A load checks that each page is mapped at its place.
    assert!((huge..2 * huge).all(|page| world.view.load(page * One::<KIB>::BLOCKS, &world.disk).is_some()));
}

fn a_page_of_any_two_mebibytes_is_mapped_at_its_place_after_the_sync<const KIB: u64>() {
    let world = World::<KIB>::new();
    for page in [3, One::<KIB>::HUGE + 3, 2 * One::<KIB>::HUGE + 5] {
        assert_eq!(world.store(page, Order::Small), Some(page..page + 1));
        assert!(world.is_writable(page) && world.view.load(page * One::<KIB>::BLOCKS, &world.disk).is_some());
    }
}

fn an_error_of_the_sync_is_the_faults_and_nothing_may_be_stored<const KIB: u64>() {
    let world = World::<KIB>::new();
    for order in [Order::Small, Order::Huge] {
        let outcome = world.fault(7, order, Intent::StoreSync, |_| Err(Errno::IO));
        assert_eq!(outcome, FaultOutcome::Failed(Errno::IO));
        assert!(!world.is_writable(7));
    }
    // The next one may succeed.
    assert!(world.store(7, Order::Small).is_some() && world.is_writable(7));
}

fn a_page_that_is_cut_off_during_the_sync_is_faulted_again<const KIB: u64>() {
    let world = World::<KIB>::new();
    let outcome = world.fault(7, Order::Small, Intent::StoreSync, |_| {
        world.disk.sync();
        world.cut();
        Ok(())
    });
    assert_eq!(outcome, FaultOutcome::Installed);
    assert!(!world.is_writable(7), "its place is gone");
    assert!(world.store(7, Order::Small).is_some());
    assert!(world.is_writable(7) && world.is_durable(7));
}

fn an_entry_that_another_fault_has_made_since_is_not_taken_for_the_synced_one<const KIB: u64>() {
    for order in [Order::Small, Order::Huge] {
        let world = World::<KIB>::new();
        let outcome = world.fault(7, order, Intent::StoreSync, |_| {
            world.disk.sync();
            world.cut();
            assert_eq!(world.fault(7, order, Intent::Load, |_| Ok(())), FaultOutcome::Installed);
            Ok(())
        });
        assert_eq!(outcome, FaultOutcome::Installed);
        assert!(!world.is_writable(7), "a store would find no durable place");
    }
}

fn nothing_beyond_the_end_of_the_file_may_be_stored_to_before_it_is_made_durable<const KIB: u64>() {
    // A view that may have pages there, as that of a process may.
    let world = World::<KIB>::over(Disk::new(false, true), true);
    // The last page of which the host has all.
    let end = BLOCKS / One::<KIB>::BLOCKS;
    assert_eq!(world.store(end - 1, Order::Huge), Some(end - 1..end));
    assert!(!world.is_writable(end));
    if KIB > 4 {
        // The next one begins within the file, and its end would have no place.
        let outcome = world.fault(end, Order::Huge, Intent::StoreSync, |_| unreachable!("nothing has a place"));
        assert_eq!((outcome, world.place(end)), (FaultOutcome::PartialPage, None));
        // A store that need not be durable goes through: this view survives one that is too far.
        assert_eq!(world.fault(end, Order::Small, Intent::Store, |_| Ok(())), FaultOutcome::Installed);
    }
    world.disk.resize(4 * BLOCKS_PER_HUGE * HOST_PAGE_LEN);
    assert!(world.store(end, Order::Small).is_some());
    assert!(world.is_durable(end));
}

fn a_file_that_is_shorter_than_it_was_known_to_be_has_its_pages_stored_to_one_by_one<const KIB: u64>() {
    let world = World::<KIB>::new();
    // The entry of 2 MiB exists already, and the known size predates the host's truncation.
    assert_eq!(world.fault(0, Order::Huge, Intent::Load, |_| Ok(())), FaultOutcome::Installed);
    world.disk.stored_len_bytes.set(10 * One::<KIB>::PAGE_SIZE.bytes());
    assert_eq!(world.store(9, Order::Huge), Some(9..10));
    let outcome = world.fault(10, Order::Huge, Intent::StoreSync, |_| unreachable!("there is no such page"));
    assert_eq!(outcome, FaultOutcome::OutOfFile);
}

fn where_the_system_below_waits_itself_nothing_is_synced<const KIB: u64>() {
    let world = World::<KIB>::over(Disk::new(false, false), false);
    assert_eq!(world.store(7, Order::Huge), None);
    assert!(world.is_writable(7));
}
