//! The rules of the tree of entries, in one thread: which entry serves a fault, and what is left of it.

use alloc::vec::Vec;
use core::{cell::RefCell, ops::Range};

use super::{Grab, Kind, Locked, Order, Tree};
use crate::dax::fake_test::{One, at_each_size};

/// Locks an entry, or returns `None` if the fault falls back. Nothing is split.
fn grab<const KIB: u64>(
    tree: &Tree<One<KIB>>,
    page: u64,
    order: Order,
    is_write: bool,
) -> Option<Locked<'_, One<KIB>>> {
    match tree.grab(page, order, is_write, |pages| panic!("{pages:?} are taken out")) {
        Grab::Locked(entry) => Some(entry),
        Grab::FallBack => None,
    }
}

fn put<const KIB: u64>(tree: &Tree<One<KIB>>, page: u64, order: Order, kind: Kind) {
    grab(tree, page, order, false).unwrap().set_kind(kind);
}

fn found<const KIB: u64>(tree: &Tree<One<KIB>>, page: u64) -> Option<(Order, Kind, Range<u64>)> {
    tree.find(page).map(|entry| (entry.order(), entry.kind(), entry.pages()))
}

at_each_size! {
    an_entry_covers_its_pages_and_no_other
    an_entry_that_stays_empty_is_gone
    two_mebibytes_serve_small_faults_and_small_entries_no_large_one
    zeros_of_two_mebibytes_are_split_by_a_small_store_alone
    a_stamp_changes_with_each_removal_and_never_comes_back
    all_entries_of_two_mebibytes_are_locked_and_no_others
    idle_is_what_was_not_used_since_the_last_look_and_is_neither_locked_nor_pinned
    pins_take_nodes_for_as_long_as_they_last
    the_numbers_of_two_mebibytes_are_those_that_the_pages_touch
}

fn an_entry_covers_its_pages_and_no_other<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    put(&tree, huge + 7, Order::Huge, Kind::Real);
    put(&tree, huge - 1, Order::Small, Kind::Real);
    put(&tree, 2 * huge, Order::Small, Kind::Zero);
    let whole = Some((Order::Huge, Kind::Real, huge..2 * huge));
    assert_eq!([huge, huge + 7, 2 * huge - 1].map(|page| found(&tree, page)), [whole.clone(), whole.clone(), whole]);
    assert_eq!(found(&tree, huge - 1), Some((Order::Small, Kind::Real, huge - 1..huge)));
    assert_eq!(found(&tree, 2 * huge), Some((Order::Small, Kind::Zero, 2 * huge..2 * huge + 1)));
    assert_eq!([0, huge - 2, 2 * huge + 1, 3 * huge].map(|page| found(&tree, page)), [None, None, None, None]);
    assert_eq!(tree.nodes(), 3);
}

fn an_entry_that_stays_empty_is_gone<const KIB: u64>() {
    let tree = Tree::<One<KIB>>::default();
    for order in [Order::Small, Order::Huge] {
        drop(grab(&tree, 5, order, true));
        assert_eq!((found(&tree, 5), tree.nodes()), (None, 0));
    }
}

fn two_mebibytes_serve_small_faults_and_small_entries_no_large_one<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    put(&tree, 3, Order::Huge, Kind::Real);
    for is_write in [false, true] {
        assert_eq!(grab(&tree, 9, Order::Small, is_write).unwrap().order(), Order::Huge);
        assert_eq!(grab(&tree, 9, Order::Huge, is_write).unwrap().order(), Order::Huge);
    }
    put(&tree, huge, Order::Small, Kind::Real);
    assert!(grab(&tree, huge, Order::Huge, false).is_none());
    assert!(grab(&tree, huge + huge / 2, Order::Huge, false).is_none());
    tree.find(huge).unwrap().remove();
    assert!(grab(&tree, huge + huge / 2, Order::Huge, false).is_some());
}

fn zeros_of_two_mebibytes_are_split_by_a_small_store_alone<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    put(&tree, 0, Order::Huge, Kind::Zero);
    assert_eq!(grab(&tree, 9, Order::Small, false).unwrap().order(), Order::Huge);
    assert_eq!(grab(&tree, 9, Order::Huge, true).unwrap().order(), Order::Huge);
    let taken_out = RefCell::new(Vec::new());
    let Grab::Locked(mut entry) = tree.grab(9, Order::Small, true, |pages| taken_out.borrow_mut().push(pages)) else {
        panic!("it falls back")
    };
    assert_eq!((entry.order(), entry.kind(), entry.pages()), (Order::Small, Kind::Empty, 9..10));
    assert_eq!((taken_out.borrow().len(), taken_out.borrow()[0].clone()), (1, 0..huge));
    entry.set_kind(Kind::Real);
    drop(entry);
    assert_eq!((found(&tree, 8), found(&tree, 9)), (None, Some((Order::Small, Kind::Real, 9..10))));
}

fn a_stamp_changes_with_each_removal_and_never_comes_back<const KIB: u64>() {
    let tree = Tree::<One<KIB>>::default();
    let mut seen = Vec::new();
    for _ in 0..3 {
        put(&tree, 4, Order::Small, Kind::Real);
        put(&tree, 5, Order::Small, Kind::Real);
        let before = tree.find(4).unwrap().stamp();
        assert_eq!(tree.find(4).unwrap().stamp(), before, "nothing was removed");
        tree.find(5).unwrap().remove();
        let after = tree.find(4).unwrap().stamp();
        assert!(before.is_some() && after.is_some());
        seen.extend([before, after]);
        tree.find(4).unwrap().remove();
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

fn all_entries_of_two_mebibytes_are_locked_and_no_others<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    for page in [huge - 1, huge, huge + 1, 2 * huge - 1, 2 * huge] {
        put(&tree, page, Order::Small, Kind::Real);
    }
    [huge, 2 * huge - 1, 2 * huge].into_iter().for_each(|page| tree.find(page).unwrap().set_dirty(true));
    let mut entries = tree.lock_all(1);
    assert!(!entries.is_empty());
    assert_eq!(entries.dirty().collect::<Vec<_>>(), [huge..huge + 1, 2 * huge - 1..2 * huge]);
    // The neighbours are not locked: in one thread, finding a locked one would fail.
    assert!(found(&tree, huge - 1).is_some() && found(&tree, 2 * huge).is_some());
    entries.clear_dirty();
    assert_eq!(entries.dirty().count(), 0);
    drop(entries);
    assert!(!tree.find(huge).unwrap().is_dirty() && tree.find(2 * huge).unwrap().is_dirty());
    tree.lock_all(1).remove();
    assert_eq!((tree.nodes(), found(&tree, huge + 1)), (2, None));
    assert!(tree.lock_all(1).is_empty());

    put(&tree, 5 * huge, Order::Huge, Kind::Real);
    tree.find(5 * huge + 9).unwrap().set_dirty(true);
    assert_eq!(tree.lock_all(5).dirty().next(), Some(5 * huge..6 * huge));
}

fn idle_is_what_was_not_used_since_the_last_look_and_is_neither_locked_nor_pinned<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    assert!(tree.try_lock_idle(0).is_some_and(|entries| entries.is_empty()), "nothing is idle");
    for (index, order) in [(0, Order::Small), (1, Order::Huge)] {
        let page = index * huge + 3;
        put(&tree, page, order, Kind::Real);
        assert!(tree.try_lock_idle(index).is_none(), "just used");
        assert!(tree.try_lock_idle(index).is_some_and(|entries| !entries.is_empty()));
        tree.find(page).unwrap().set_kind(Kind::Real);
        assert!(tree.try_lock_idle(index).is_none(), "used again");
        let locked = tree.find(page);
        assert!(tree.try_lock_idle(index).is_none(), "locked");
        drop(locked);
        let pin = tree.pin(page..page + 1);
        assert!(tree.try_lock_idle(index).is_none(), "pinned");
        drop(pin);
        tree.try_lock_idle(index).unwrap().remove();
        assert_eq!(tree.nodes(), 0);
    }
    // One young entry of several.
    put(&tree, 0, Order::Small, Kind::Real);
    put(&tree, huge - 1, Order::Small, Kind::Real);
    assert!(tree.try_lock_idle(0).is_none());
    tree.find(huge - 1).unwrap().set_kind(Kind::Real);
    assert!(tree.try_lock_idle(0).is_none());
    assert!(tree.try_lock_idle(0).is_some());
}

fn pins_take_nodes_for_as_long_as_they_last<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    let (one, other) = (tree.pin(huge - 1..huge + 1), tree.pin(huge..huge + 1));
    assert_eq!(tree.nodes(), 2);
    drop(one);
    assert_eq!(tree.nodes(), 1);
    tree.layout_busy(0..huge);
    tree.layout_busy(2 * huge..3 * huge);
    drop(other);
    assert_eq!(tree.nodes(), 0);
    tree.layout_busy(0..u64::MAX);
    drop(tree.pin(7..7));
}

fn the_numbers_of_two_mebibytes_are_those_that_the_pages_touch<const KIB: u64>() {
    let huge = One::<KIB>::HUGE;
    let tree = Tree::<One<KIB>>::default();
    for index in 0..3 {
        put(&tree, index * huge, Order::Small, Kind::Real);
    }
    let cases: [(Range<u64>, &[u64]); 6] = [
        (0..0, &[]),
        (0..huge, &[0]),
        (0..huge + 1, &[0, 1]),
        (huge - 1..huge, &[0]),
        (huge..2 * huge, &[1]),
        (huge + 1..u64::MAX, &[1, 2]),
    ];
    for (pages, indices) in cases {
        assert_eq!(tree.indices(pages.clone()), indices, "{pages:?}");
    }
}
