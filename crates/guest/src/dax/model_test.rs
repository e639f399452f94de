//! Faults, write-backs, reclaims and truncations at random, against a plain map of pages of 4 KiB.

extern crate std;

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::{cell::RefCell, ops::Range, ptr::NonNull};
use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::{
    PageTables as _,
    entry::{Order, PAGE_LEN, PAGES_PER_HUGE},
    fault::{Backing, Fault, Intent, Lent, Outcome, Place, View},
    mapped::Mapped,
};
use crate::{Errno, Platform, platform::Event};

/// The file has at most so many pages: three whole 2 MiB and a part.
const PAGES: u64 = 3 * PAGES_PER_HUGE + 40;

struct One;

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

/// Nobody is there who could wake.
#[derive(Default)]
struct Alone;

impl Event for Alone {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        assert!(is_done(), "somebody waits, alone");
        true
    }

    fn wake_all(&self) {}
}

/// The file: page contents by number, holes being absent. The memory of 2 MiB number i begins at an address made of i.
struct Disk {
    contents: RefCell<BTreeMap<u64, u32>>,
    pages: RefCell<u64>,
    has_holes: bool,
    is_unstable: bool,
}

struct At(u64, bool);

impl Lent for At {
    fn start(&self) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(((self.0 + 1) * super::RANGE_LEN) as usize)).unwrap()
    }

    fn is_unstable(&self) -> bool {
        self.1
    }
}

fn page_at(address: usize) -> u64 {
    assert_eq!(address as u64 % PAGE_LEN, 0);
    (address as u64 - super::RANGE_LEN) / PAGE_LEN
}

impl Backing for Disk {
    type Lent<'a> = At;

    fn len_bytes(&self, _: u64) -> Result<u64, Errno> {
        Ok(*self.pages.borrow() * PAGE_LEN)
    }

    fn lend(&self, index: u64, is_write: bool) -> Result<Place<At>, Errno> {
        let pages = Order::Huge.pages(index * PAGES_PER_HUGE);
        let mut contents = self.contents.borrow_mut();
        let is_hole = contents.range(pages.clone()).next().is_none();
        if self.has_holes && is_hole && !is_write {
            return Ok(Place::Hole);
        }
        if is_hole {
            contents.insert(pages.start, 0);
        }
        Ok(Place::Lent(At(index, self.is_unstable)))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Shared { page: u64, is_writable: bool },
    Zero,
    Copy(u32),
}

#[derive(Default)]
struct Table {
    entries: Mutex<BTreeMap<u64, Entry>>,
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

    /// Contents as a load would find them, or `None` for a fault.
    fn load(&self, page: u64, disk: &Disk) -> Option<u32> {
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
        false
    }
}

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
        is_sync: bool,
    },
    /// A store to a copy, of the private mapping.
    Copy {
        page: u64,
        value: u32,
    },
    WriteBack {
        pages: Range<u64>,
    },
    Release {
        index: u64,
    },
    Resize {
        pages: u64,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few places, so that they meet.
    let page = (0..4u64, prop_oneof![Just(0u64), Just(1), Just(39), Just(511)])
        .prop_map(|(index, page)| (index * PAGES_PER_HUGE + page).min(PAGES - 1));
    let order = prop_oneof![Just(Order::Small), Just(Order::Huge)];
    let step = prop_oneof![
        4 => (0..2usize, page.clone(), order.clone()).prop_map(|(view, page, order)| Step::Load { view, page, order }),
        4 => (0..2usize, page.clone(), order, 1..1000u32, any::<bool>())
            .prop_map(|(view, page, order, value, is_sync)| Step::Store { view, page, order, value, is_sync }),
        1 => (page.clone(), 1..1000u32).prop_map(|(page, value)| Step::Copy { page, value }),
        1 => (page.clone(), 1..1100u64).prop_map(|(first, len)| Step::WriteBack { pages: first..first + len }),
        2 => (0..4u64).prop_map(|index| Step::Release { index }),
        1 => (page, 0..2u64).prop_map(|(page, more)| Step::Resize { pages: page + more }),
    ];
    prop::collection::vec(step, 1..60)
}

struct World {
    disk: Disk,
    mapped: Mapped<One>,
    views: Vec<Arc<Table>>,
    /// What is in the file, by the oracle.
    file: BTreeMap<u64, u32>,
    /// What the private mapping has of its own.
    copies: BTreeMap<u64, u32>,
    dirty: BTreeSet<u64>,
}

const PRIVATE: usize = 2;

impl World {
    fn new(has_holes: bool, is_unstable: bool) -> Self {
        let disk = Disk { contents: RefCell::default(), pages: RefCell::new(PAGES), has_holes, is_unstable };
        let views: Vec<_> = (0..3).map(|_| Arc::new(Table::default())).collect();
        let mapped = Mapped::default();
        views.iter().for_each(|view| mapped.attach(Arc::clone(view) as Arc<dyn View>));
        Self { disk, mapped, views, file: BTreeMap::new(), copies: BTreeMap::new(), dirty: BTreeSet::new() }
    }

    /// True where the access may be made.
    fn fault(&self, view: usize, access: Fault) -> bool {
        let is_outside = access.page >= *self.disk.pages.borrow();
        let outcome = self.mapped.fault_through(&self.disk, &*self.views[view], access, |pages| {
            assert!(self.disk.is_unstable && access.intent == Intent::StoreSync && pages.contains(&access.page));
            Ok(())
        });
        assert_eq!(outcome, if is_outside { Outcome::OutOfFile } else { Outcome::Installed }, "{access:?}");
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
            Step::Store { view, page, order, value, is_sync } => {
                let is_writable =
                    |found: Option<&Entry>| matches!(found, Some(Entry::Shared { is_writable: true, .. }));
                if !is_writable(self.views[view].entries.lock().get(&page)) {
                    let intent = if is_sync { Intent::StoreSync } else { Intent::Store };
                    if !self.fault(view, Fault { page, order, intent }) {
                        return;
                    }
                    assert!(is_writable(self.views[view].entries.lock().get(&page)));
                }
                self.disk.contents.borrow_mut().insert(page, value);
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
            Step::WriteBack { pages } => {
                let flushed = RefCell::new(Vec::new());
                let result = self.mapped.write_back(pages.clone(), |pages| {
                    flushed.borrow_mut().push(pages);
                    Ok(())
                });
                assert_eq!(result, Ok(()));
                for page in self.dirty.iter().filter(|page| pages.contains(page)) {
                    assert!(flushed.borrow().iter().any(|pages| pages.contains(page)), "page {page} is not flushed");
                    let is_writable = |view: &Arc<Table>| {
                        matches!(view.entries.lock().get(page), Some(Entry::Shared { is_writable: true, .. }))
                    };
                    assert!(!self.views.iter().any(is_writable), "page {page} may be stored to unseen");
                }
                self.dirty.retain(|page| !flushed.borrow().iter().any(|pages| pages.contains(page)));
            }
            Step::Release { index } => {
                let pages = Order::Huge.pages(index * PAGES_PER_HUGE);
                // The second look finds it idle, and the server has what was stored.
                if !self.mapped.release(index) {
                    assert!(self.mapped.release(index));
                }
                for view in &self.views {
                    let left =
                        view.entries.lock().range(pages.clone()).any(|(_, entry)| !matches!(entry, Entry::Copy(_)));
                    assert!(!left, "a page of {index} is still mapped");
                }
                self.dirty.retain(|page| !pages.contains(page));
            }
            Step::Resize { pages } => {
                let before = core::mem::replace(&mut *self.disk.pages.borrow_mut(), pages);
                if pages < before {
                    self.mapped.revoke(pages * PAGE_LEN..u64::MAX / 2, true);
                    self.disk.contents.borrow_mut().split_off(&pages);
                    self.file.split_off(&pages);
                    self.copies.split_off(&pages);
                    self.dirty.split_off(&Order::Huge.first_page(pages));
                    let last = |view: &Arc<Table>| view.entries.lock().last_key_value().map(|(&page, _)| page);
                    assert!(self.views.iter().all(|view| last(view).is_none_or(|page| page < pages)));
                }
            }
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
        let World { mapped, views, .. } = world;
        for view in views {
            mapped.detach(&(view as Arc<dyn View>));
        }
        prop_assert_eq!(mapped.tree().nodes(), 0);
    }
}
