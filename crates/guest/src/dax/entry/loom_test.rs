//! Models of locking, waiting, splitting and removal: after a lost wake-up a thread stands still, which loom reports.

#![expect(clippy::unwrap_used, reason = "a lock of loom is never poisoned")]

use alloc::sync::Arc;

use loom::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    thread,
};

use super::{Grab, Kind, Locked, Order, Tree};
use crate::queue::loom_test::platform::Model;

type ModelTree = Tree<Model>;

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 100_000;
    model.check(run);
}

fn grab(tree: &ModelTree, page: u64, order: Order, is_write: bool) -> Option<Locked<'_, Model>> {
    match tree.grab(page, order, is_write, |_| {}) {
        Grab::Locked(entry) => Some(entry),
        Grab::FallBack => None,
    }
}

/// A tree with one entry.
fn tree(order: Order, kind: Kind) -> Arc<ModelTree> {
    let tree = Arc::new(ModelTree::default());
    grab(&tree, 0, order, false).unwrap().set_kind(kind);
    tree
}

/// Uses the entry, and checks that no other thread does.
fn alone(users: &AtomicU32, entry: &mut Locked<'_, Model>) {
    assert_eq!(users.fetch_add(1, SeqCst), 0, "two threads have one entry");
    entry.set_kind(Kind::Real);
    users.fetch_sub(1, SeqCst);
}

#[test]
fn faults_on_one_page_take_turns_and_each_gets_its_own() {
    model(|| {
        let (tree, users) = (tree(Order::Small, Kind::Real), Arc::new(AtomicU32::new(0)));
        let others = [(); 2].map(|()| {
            let (tree, users) = (Arc::clone(&tree), Arc::clone(&users));
            thread::spawn(move || alone(&users, &mut grab(&tree, 0, Order::Small, true).unwrap()))
        });
        alone(&users, &mut grab(&tree, 0, Order::Small, true).unwrap());
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

#[test]
fn a_removal_wakes_all_who_wait() {
    model(|| {
        let tree = tree(Order::Huge, Kind::Real);
        let entry = tree.find(0).unwrap();
        let others = [Order::Huge, Order::Small].map(|order| {
            let tree = Arc::clone(&tree);
            // The first thread creates the entry. An entry of 2 MiB serves both; after one of 4 KiB the other thread
            // falls back.
            thread::spawn(move || grab(&tree, 7, order, true).map(|mut entry| entry.set_kind(Kind::Real)).is_some())
        });
        entry.remove();
        let [huge, small] = others.map(|other| other.join().unwrap());
        assert!(small);
        assert_eq!(huge, tree.find(7).unwrap().order() == Order::Huge);
    });
}

#[test]
fn a_fault_that_fails_leaves_no_entry_and_no_sleeper() {
    model(|| {
        let tree = Arc::new(ModelTree::default());
        let others = [(); 2].map(|()| {
            let tree = Arc::clone(&tree);
            // Still empty when it is dropped.
            thread::spawn(move || drop(grab(&tree, 0, Order::Small, true)))
        });
        drop(grab(&tree, 0, Order::Huge, true));
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(tree.nodes(), 0);
    });
}

#[test]
fn who_waits_for_zeros_that_are_split_finds_the_small_entry() {
    model(|| {
        let tree = tree(Order::Huge, Kind::Zero);
        let unmapped = Arc::new(AtomicU32::new(0));
        let others = [0, 1].map(|page| {
            let (tree, unmapped) = (Arc::clone(&tree), Arc::clone(&unmapped));
            thread::spawn(move || {
                let count = |_| {
                    unmapped.fetch_add(1, SeqCst);
                };
                let Grab::Locked(mut entry) = tree.grab(page, Order::Small, true, count) else {
                    panic!("it falls back")
                };
                assert_eq!((entry.order(), entry.kind()), (Order::Small, Kind::Empty));
                entry.set_kind(Kind::Real);
            })
        });
        if let Some(entry) = tree.find(5) {
            assert_eq!((entry.order(), entry.kind()), (Order::Huge, Kind::Zero));
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(unmapped.load(SeqCst), 1);
    });
}

#[test]
fn what_takes_two_mebibytes_away_and_faults_in_them_pass_each_other() {
    model(|| {
        let tree = tree(Order::Small, Kind::Real);
        grab(&tree, 1, Order::Small, true).unwrap().set_kind(Kind::Real);
        let users = Arc::new(AtomicU32::new(0));
        let fault = {
            let (tree, users) = (Arc::clone(&tree), Arc::clone(&users));
            thread::spawn(move || alone(&users, &mut grab(&tree, 1, Order::Small, true).unwrap()))
        };
        let second = {
            let tree = Arc::clone(&tree);
            thread::spawn(move || drop(tree.lock_all(0)))
        };
        let entries = tree.lock_all(0);
        if !entries.is_empty() {
            assert_eq!(users.fetch_add(1, SeqCst), 0);
            users.fetch_sub(1, SeqCst);
        }
        entries.remove();
        second.join().unwrap();
        fault.join().unwrap();
    });
}

#[test]
fn who_changes_the_layout_waits_for_the_last_pin() {
    model(|| {
        let tree = tree(Order::Huge, Kind::Real);
        let uses = Arc::new(AtomicU32::new(2));
        let pins = [3..4, 0..600].map(|pages| {
            // Pinned before the change begins, as the code that begins it ensures.
            let (tree, uses) = (Arc::clone(&tree), Arc::clone(&uses));
            core::mem::forget(tree.pin(pages.clone()));
            thread::spawn(move || {
                uses.fetch_sub(1, SeqCst);
                tree.unpin(&pages);
            })
        });
        tree.layout_busy(0..10);
        assert_eq!(uses.load(SeqCst), 0);
        pins.into_iter().for_each(|pin| pin.join().unwrap());
        assert_eq!(tree.nodes(), 1);
    });
}
