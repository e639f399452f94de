//! Durable stores: what is made durable before a page may be stored to, and what happens if that fails.

use alloc::sync::Arc;
use core::ops::Range;

use super::{
    PageTables as _,
    entry::{Order, PAGE_LEN, PAGES_PER_HUGE},
    fake_test::{Disk, One, PAGES, Table},
    fault::{Fault, FaultOutcome, Intent, View},
    mapped::Mapped,
};
use crate::Errno;

struct World {
    disk: Disk,
    mapped: Mapped<One>,
    view: Arc<Table>,
}

impl World {
    fn new() -> Self {
        Self::over(Disk::new(false, true), Table::default())
    }

    fn over(disk: Disk, table: Table) -> Self {
        let (mapped, view) = (Mapped::default(), Arc::new(table));
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

    fn is_durable(&self, page: u64) -> bool {
        self.disk.places.borrow().get(&page) == Some(&true)
    }

    /// Truncates the file to `pages`, and extends it again to its old length.
    fn cut(&self, pages: u64) {
        let before = *self.disk.pages.borrow();
        self.mapped.revoke(pages * PAGE_LEN..u64::MAX / 2, true);
        self.disk.resize(pages);
        self.disk.resize(before);
    }
}

#[test]
fn a_page_has_its_place_before_the_sync_and_may_be_stored_to_after_it() {
    let world = World::new();
    let outcome = world.fault(7, Order::Small, Intent::StoreSync, |pages| {
        assert_eq!(pages, 7..8);
        assert_eq!(world.disk.places.borrow().get(&7), Some(&false));
        assert!(!world.view.is_writable(7));
        world.disk.sync();
        Ok(())
    });
    assert_eq!(outcome, FaultOutcome::Installed);
    assert!(world.view.is_writable(7) && !world.view.is_writable(8));
}

#[test]
fn one_sync_serves_two_mebibytes() {
    let world = World::new();
    assert_eq!(world.store(PAGES_PER_HUGE + 3, Order::Huge), Some(PAGES_PER_HUGE..2 * PAGES_PER_HUGE));
    assert!((PAGES_PER_HUGE..2 * PAGES_PER_HUGE).all(|page| world.view.is_writable(page) && world.is_durable(page)));
}

#[test]
fn an_error_of_the_sync_is_the_faults_and_nothing_may_be_stored() {
    let world = World::new();
    for order in [Order::Small, Order::Huge] {
        let outcome = world.fault(7, order, Intent::StoreSync, |_| Err(Errno::IO));
        assert_eq!(outcome, FaultOutcome::Failed(Errno::IO));
        assert!(!world.view.is_writable(7));
    }
    // The next one may succeed.
    assert!(world.store(7, Order::Small).is_some() && world.view.is_writable(7));
}

#[test]
fn a_page_that_is_cut_off_during_the_sync_is_faulted_again() {
    let world = World::new();
    let outcome = world.fault(7, Order::Small, Intent::StoreSync, |_| {
        world.disk.sync();
        world.cut(0);
        Ok(())
    });
    assert_eq!(outcome, FaultOutcome::Installed);
    assert!(!world.view.is_writable(7), "its place is gone");
    assert!(world.store(7, Order::Small).is_some());
    assert!(world.view.is_writable(7) && world.is_durable(7));
}

#[test]
fn an_entry_that_another_fault_has_made_since_is_not_taken_for_the_synced_one() {
    for order in [Order::Small, Order::Huge] {
        let world = World::new();
        let outcome = world.fault(7, order, Intent::StoreSync, |_| {
            world.disk.sync();
            world.cut(0);
            assert_eq!(world.fault(7, order, Intent::Load, |_| Ok(())), FaultOutcome::Installed);
            Ok(())
        });
        assert_eq!(outcome, FaultOutcome::Installed);
        assert!(!world.view.is_writable(7), "a store would find no durable place");
    }
}

#[test]
fn nothing_beyond_the_end_of_the_file_may_be_stored_to_before_it_is_made_durable() {
    // A view that may have pages there, as that of a process may.
    let world = World::over(Disk::new(false, true), Table { allows_beyond_end: true, ..Table::default() });
    let last = PAGES - 1;
    assert_eq!(world.store(last, Order::Huge), Some(last..PAGES));
    assert!(!world.view.is_writable(PAGES));
    world.disk.resize(4 * PAGES_PER_HUGE);
    assert!(world.store(PAGES, Order::Huge).is_some());
    assert!(world.is_durable(PAGES));
}

#[test]
fn a_file_that_is_shorter_than_it_was_known_to_be_has_its_pages_stored_to_one_by_one() {
    let world = World::new();
    // The entry of 2 MiB exists already, and the known size predates the host's truncation.
    assert_eq!(world.fault(0, Order::Huge, Intent::Load, |_| Ok(())), FaultOutcome::Installed);
    *world.disk.stored_pages.borrow_mut() = 10;
    assert_eq!(world.store(9, Order::Huge), Some(9..10));
    let outcome = world.fault(10, Order::Huge, Intent::StoreSync, |_| unreachable!("there is no such page"));
    assert_eq!(outcome, FaultOutcome::OutOfFile);
}

#[test]
fn where_the_system_below_waits_itself_nothing_is_synced() {
    let world = World::over(Disk::new(false, false), Table::default());
    assert_eq!(world.store(7, Order::Huge), None);
    assert!(world.view.is_writable(7));
}
