//! Random faults, write-backs, reclaims and truncations, compared with a plain map of 4 KiB pages.

extern crate std;

use alloc::{sync::Arc, vec::Vec};
use core::{cell::RefCell, ops::Range};
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    Change, PageTables as _,
    entry::{Order, PAGE_LEN, PAGES_PER_HUGE},
    fake_test::{Disk, Entry, One, PAGES, Table},
    fault::{Fault, FaultOutcome, Intent, View},
    mapped::Mapped,
};
use crate::Errno;

#[derive(Debug, Clone)]
enum Step {
    Load {
        view: usize,
        page: u64,
        order: Order,
    },
    Store {
        view: usize,
        page: u64,
        order: Order,
        value: u32,
    },
    /// A store to a private copy, through the private mapping.
    Copy {
        page: u64,
        value: u32,
    },
    WriteBack {
        pages: Range<u64>,
        /// Index of the `flush` call that fails, if it is reached.
        fails_at: Option<usize>,
    },
    Release {
        index: u64,
    },
    Resize {
        pages: u64,
        /// The server refuses.
        fails: bool,
    },
    Hole {
        pages: Range<u64>,
    },
    /// All mappings end, and new ones begin.
    Remap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few different pages, so that steps collide.
    let page = (0..4u64, prop_oneof![Just(0u64), Just(1), Just(39), Just(511)])
        .prop_map(|(index, page)| (index * PAGES_PER_HUGE + page).min(PAGES - 1));
    let order = prop_oneof![Just(Order::Small), Just(Order::Huge)];
    let step = prop_oneof![
        4 => (0..2usize, page.clone(), order.clone()).prop_map(|(view, page, order)| Step::Load { view, page, order }),
        4 => (0..2usize, page.clone(), order, 1..1000u32)
            .prop_map(|(view, page, order, value)| Step::Store { view, page, order, value }),
        1 => (page.clone(), 1..1000u32).prop_map(|(page, value)| Step::Copy { page, value }),
        1 => (page.clone(), 1..1100u64, prop::option::of(0..3usize))
            .prop_map(|(first, len, fails_at)| Step::WriteBack { pages: first..first + len, fails_at }),
        2 => (0..4u64).prop_map(|index| Step::Release { index }),
        1 => (page.clone(), 0..2u64, any::<bool>())
            .prop_map(|(page, more, fails)| Step::Resize { pages: page + more, fails }),
        1 => (page, 1..600u64).prop_map(|(first, len)| Step::Hole { pages: first..first + len }),
        1 => Just(Step::Remap),
    ];
    prop::collection::vec(step, 1..60)
}

struct World {
    disk: Disk,
    mapped: Mapped<One>,
    views: Vec<Arc<Table>>,
    /// The contents of the file, by the oracle.
    file: BTreeMap<u64, u32>,
    /// The private copies of the private mapping.
    copies: BTreeMap<u64, u32>,
    dirty: BTreeSet<u64>,
}

/// The mapping whose stores are durable.
const SYNC: usize = 1;
const PRIVATE: usize = 2;

impl World {
    fn new(has_holes: bool, is_unstable: bool) -> Self {
        let disk = Disk::new(has_holes, is_unstable);
        let views: Vec<_> = (0..3).map(|_| Arc::new(Table::default())).collect();
        let mapped = Mapped::default();
        views.iter().for_each(|view| mapped.attach(Arc::clone(view) as Arc<dyn View>));
        Self { disk, mapped, views, file: BTreeMap::new(), copies: BTreeMap::new(), dirty: BTreeSet::new() }
    }

    /// Returns true if the access is allowed.
    fn fault(&self, view: usize, access: Fault) -> bool {
        let is_outside = access.page >= *self.disk.pages.borrow();
        let outcome = self.mapped.fault_through(&self.disk, &*self.views[view], access, |pages| {
            assert!(self.disk.is_unstable && access.intent == Intent::StoreSync && pages.contains(&access.page));
            self.disk.sync();
            Ok(())
        });
        assert_eq!(outcome, if is_outside { FaultOutcome::OutOfFile } else { FaultOutcome::Installed }, "{access:?}");
        !is_outside
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Load { view, page, order } => {
                if self.views[view].load(page, &self.disk).is_none()
                    && !self.fault(view, Fault { page, order, intent: Intent::Load })
                {
                    return;
                }
                let expected = self.file.get(&page).copied().unwrap_or(0);
                assert_eq!(self.views[view].load(page, &self.disk), Some(expected), "page {page}");
            }
            Step::Store { view, page, order, value } => {
                if !self.views[view].is_writable(page) {
                    let intent = if view == SYNC { Intent::StoreSync } else { Intent::Store };
                    if !self.fault(view, Fault { page, order, intent }) {
                        return;
                    }
                    assert!(self.views[view].is_writable(page));
                }
                self.disk.store(page, value);
                self.file.insert(page, value);
                self.dirty.insert(page);
            }
            Step::Copy { page, value } => {
                if !self.copies.contains_key(&page)
                    && !self.fault(PRIVATE, Fault { page, order: Order::Huge, intent: Intent::Copy })
                {
                    return;
                }
                let before = self.views[PRIVATE].entries.lock().insert(page, Entry::Copy(value));
                assert!(matches!(before, Some(Entry::Copy(_))));
                self.copies.insert(page, value);
            }
            Step::WriteBack { pages, fails_at } => {
                let flushed = RefCell::new(Vec::new());
                let result = self.mapped.write_back(pages.clone(), |pages| {
                    // In this single thread, waiting for a locked entry would end the test.
                    drop(self.mapped.tree().find(pages.start));
                    if fails_at == Some(flushed.borrow().len()) {
                        return Err(Errno::IO);
                    }
                    flushed.borrow_mut().push(pages);
                    Ok(())
                });
                if result == Err(Errno::IO) {
                    self.dirty.retain(|page| !flushed.borrow().iter().any(|pages| pages.contains(page)));
                    return;
                }
                assert_eq!(result, Ok(()));
                for page in self.dirty.iter().filter(|page| pages.contains(page)) {
                    assert!(flushed.borrow().iter().any(|pages| pages.contains(page)), "page {page} is not flushed");
                    let is_writable = |view: &Arc<Table>| view.is_writable(*page);
                    assert!(!self.views.iter().any(is_writable), "page {page} may be stored to unseen");
                }
                self.dirty.retain(|page| !flushed.borrow().iter().any(|pages| pages.contains(page)));
            }
            Step::Release { index } => {
                let pages = Order::Huge.pages(index * PAGES_PER_HUGE);
                // The second call finds it idle.
                if !self.mapped.release(index) {
                    assert!(self.mapped.release(index));
                }
                for view in &self.views {
                    let left =
                        view.entries.lock().range(pages.clone()).any(|(_, entry)| !matches!(entry, Entry::Copy(_)));
                    assert!(!left, "a page of {index} is still mapped");
                }
            }
            Step::Resize { pages, fails } => {
                let before = *self.disk.pages.borrow();
                if pages >= before {
                    self.disk.resize(pages);
                } else if fails {
                    self.mapped.revoke(pages * PAGE_LEN..u64::MAX / 2, false);
                } else {
                    self.mapped.revoke(pages * PAGE_LEN..u64::MAX / 2, true);
                    self.disk.resize(pages);
                    self.mapped.changed(Change::Cut { len_bytes: pages * PAGE_LEN });
                    self.file.split_off(&pages);
                    self.copies.split_off(&pages);
                    self.dirty.split_off(&pages);
                    let last = |view: &Arc<Table>| view.entries.lock().last_key_value().map(|(&page, _)| page);
                    assert!(self.views.iter().all(|view| last(view).is_none_or(|page| page < pages)));
                }
            }
            Step::Hole { pages } => {
                self.mapped.revoke(pages.start * PAGE_LEN..pages.end * PAGE_LEN, false);
                for page in pages.clone() {
                    self.disk.contents.borrow_mut().remove(&page);
                    self.disk.places.borrow_mut().remove(&page);
                    self.file.remove(&page);
                }
                // FSYNC is what makes a hole durable.
                self.dirty.retain(|page| !pages.contains(page));
            }
            Step::Remap => {
                for view in &self.views {
                    view.zap(0..u64::MAX, false);
                    self.mapped.detach(&(Arc::clone(view) as Arc<dyn View>));
                }
                assert_eq!(self.mapped.tree().nodes(), 0);
                self.views.iter().for_each(|view| self.mapped.attach(Arc::clone(view) as Arc<dyn View>));
            }
        }
        if self.disk.is_unstable {
            let is_durable = |page: u64| self.disk.places.borrow().get(&page) == Some(&true);
            assert!(
                (0..PAGES).all(|page| !self.views[SYNC].is_writable(page) || is_durable(page)),
                "a store would be lost"
            );
        }
        for (page, value) in &self.copies {
            assert_eq!(self.views[PRIVATE].load(*page, &self.disk), Some(*value));
        }
        assert!(self.mapped.tree().nodes() <= PAGES.div_ceil(PAGES_PER_HUGE) as usize);
    }
}

proptest! {
    #[test]
    fn mappings_show_what_a_plain_map_of_pages_has(has_holes: bool, is_unstable: bool, steps in steps()) {
        let mut world = World::new(has_holes, is_unstable);
        steps.into_iter().for_each(|step| world.take(step));
        world.take(Step::Remap);
        // Nothing is mapped any more; stores must be durable nevertheless.
        world.take(Step::WriteBack { pages: 0..u64::MAX, fails_at: None });
        prop_assert!(world.dirty.is_empty());
    }
}
