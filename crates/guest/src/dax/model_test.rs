//! Random faults, write-backs, reclaims and truncations, compared with a plain map of the host's pages, which the tests
//! call blocks.

extern crate std;

use alloc::{sync::Arc, vec::Vec};
use core::{cell::RefCell, ops::Range};
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{
    Change, PageTables as _,
    entry::Order,
    fake_test::{BLOCKS, BLOCKS_PER_HUGE, COPIED, Disk, Entry, One, Table},
    fault::{Fault, FaultOutcome, HOST_PAGE_LEN, Intent, View},
    mapped::Mapped,
};
use crate::{Errno, Platform as _};

#[derive(Debug, Clone)]
enum Step {
    Load {
        view: usize,
        block: u64,
        order: Order,
    },
    Store {
        view: usize,
        block: u64,
        order: Order,
        value: u32,
    },
    /// A store to a private copy, through the private mapping.
    Copy {
        block: u64,
        value: u32,
    },
    WriteBack {
        blocks: Range<u64>,
        /// Index of the `flush` call that fails, if it is reached.
        fails_at: Option<usize>,
    },
    Release {
        index: u64,
    },
    Resize {
        len_bytes: u64,
        /// The server refuses.
        fails: bool,
    },
    Hole {
        blocks: Range<u64>,
    },
    /// All mappings end, and new ones begin.
    Remap,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few different blocks, so that steps collide.
    let block = (0..4u64, prop_oneof![Just(0u64), Just(1), Just(39), Just(511)])
        .prop_map(|(index, block)| (index * BLOCKS_PER_HUGE + block).min(BLOCKS - 1));
    let order = prop_oneof![Just(Order::Small), Just(Order::Huge)];
    let len = (block.clone(), 0..2u64, prop_oneof![Just(0u64), Just(1), Just(HOST_PAGE_LEN - 1)])
        .prop_map(|(block, more, less)| ((block + more) * HOST_PAGE_LEN).saturating_sub(less));
    let step = prop_oneof![
        4 => (0..2usize, block.clone(), order.clone())
            .prop_map(|(view, block, order)| Step::Load { view, block, order }),
        4 => (0..2usize, block.clone(), order, 1..1000u32)
            .prop_map(|(view, block, order, value)| Step::Store { view, block, order, value }),
        1 => (block.clone(), 1..1000u32).prop_map(|(block, value)| Step::Copy { block, value }),
        1 => (block.clone(), 1..1100u64, prop::option::of(0..3usize))
            .prop_map(|(first, len, fails_at)| Step::WriteBack { blocks: first..first + len, fails_at }),
        2 => (0..4u64).prop_map(|index| Step::Release { index }),
        1 => (len, any::<bool>()).prop_map(|(len_bytes, fails)| Step::Resize { len_bytes, fails }),
        1 => (block, 1..600u64).prop_map(|(first, len)| Step::Hole { blocks: first..first + len }),
        1 => Just(Step::Remap),
    ];
    prop::collection::vec(step, 1..60)
}

struct World<const KIB: u64> {
    disk: Disk,
    mapped: Mapped<One<KIB>>,
    views: Vec<Arc<Table>>,
    /// The contents of the file, by the oracle.
    file: BTreeMap<u64, u32>,
    /// The private copies of the private mapping, by page; their blocks.
    copies: BTreeMap<u64, Vec<u32>>,
    /// Blocks.
    dirty: BTreeSet<u64>,
}

/// The mapping whose stores are durable.
const SYNC: usize = 1;
const PRIVATE: usize = 2;

impl<const KIB: u64> World<KIB> {
    /// Bytes of a page.
    const PAGE_LEN: u64 = One::<KIB>::PAGE_SIZE.bytes();

    fn new(has_holes: bool, is_unstable: bool) -> Self {
        let disk = Disk::new(has_holes, is_unstable);
        let views: Vec<_> = (0..3).map(|_| Arc::new(Table::new(One::<KIB>::PAGE_SIZE, false))).collect();
        let mapped = Mapped::default();
        views.iter().for_each(|view| mapped.attach(Arc::clone(view) as Arc<dyn View>));
        Self { disk, mapped, views, file: BTreeMap::new(), copies: BTreeMap::new(), dirty: BTreeSet::new() }
    }

    /// Returns the page of a block.
    fn page_of(block: u64) -> u64 {
        block / One::<KIB>::BLOCKS
    }

    /// Returns true if the access is allowed.
    fn fault(&self, view: usize, block: u64, order: Order, intent: Intent) -> bool {
        let page = Self::page_of(block);
        let (first, end) = (page * One::<KIB>::BLOCKS, (page + 1) * One::<KIB>::BLOCKS);
        let is_zeros = self.disk.has_holes && intent == Intent::Load && self.disk.is_hole(block / BLOCKS_PER_HUGE);
        let expected = if first >= self.disk.blocks() {
            FaultOutcome::OutOfFile
        } else if end > self.disk.blocks() && intent != Intent::Copy && !is_zeros {
            FaultOutcome::PartialPage
        } else {
            FaultOutcome::Installed
        };
        let wanted = Fault { page, order, intent };
        let outcome = self.mapped.fault_through(&self.disk, &*self.views[view], wanted, |pages| {
            assert!(self.disk.is_unstable && intent == Intent::StoreSync && pages.contains(&page));
            self.disk.sync();
            Ok(())
        });
        assert_eq!(outcome, expected, "{wanted:?}");
        outcome == FaultOutcome::Installed
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Load { view, block, order } => {
                if self.views[view].load(block, &self.disk).is_none() && !self.fault(view, block, order, Intent::Load) {
                    return;
                }
                let expected = self.file.get(&block).copied().unwrap_or(0);
                assert_eq!(self.views[view].load(block, &self.disk), Some(expected), "block {block}");
            }
            Step::Store { view, block, order, value } => {
                let intent = if view == SYNC { Intent::StoreSync } else { Intent::Store };
                if !self.views[view].is_writable(block) && !self.fault(view, block, order, intent) {
                    return;
                }
                assert!(self.views[view].is_writable(block));
                self.disk.store(block, value);
                self.file.insert(block, value);
                self.dirty.insert(block);
            }
            Step::Copy { block, value } => self.store_to_copy(block, value),
            Step::WriteBack { blocks, fails_at } => self.write_back(&blocks, fails_at),
            Step::Release { index } => self.release(index),
            Step::Resize { len_bytes, fails } => self.resize(len_bytes, fails),
            Step::Hole { blocks } => {
                self.mapped.revoke(blocks.start * HOST_PAGE_LEN..blocks.end * HOST_PAGE_LEN, false);
                for block in blocks.clone() {
                    self.disk.contents.borrow_mut().remove(&block);
                    self.disk.places.borrow_mut().remove(&block);
                    self.file.remove(&block);
                }
                // FSYNC is what makes a hole durable.
                self.dirty.retain(|block| !blocks.contains(block));
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
        self.check();
    }

    fn store_to_copy(&mut self, block: u64, value: u32) {
        let page = Self::page_of(block);
        if !self.copies.contains_key(&page) {
            if !self.fault(PRIVATE, block, Order::Huge, Intent::Copy) {
                return;
            }
            let Some(Entry::Copy(mut values)) = self.views[PRIVATE].entries.lock().get(&page).cloned() else {
                panic!("page {page} is not a copy")
            };
            for (block, copied) in (page * One::<KIB>::BLOCKS..).zip(&mut values) {
                let expected = self.file.get(&block).copied().unwrap_or(0);
                // Zeros may be copied from the file, or be those of a hole.
                assert!(*copied == COPIED && block < self.disk.blocks() || *copied == expected, "block {block}");
                *copied = expected;
            }
            self.copies.insert(page, values);
        }
        let values = self.copies.get_mut(&page).unwrap();
        values[(block % One::<KIB>::BLOCKS) as usize] = value;
        self.views[PRIVATE].entries.lock().insert(page, Entry::Copy(values.clone()));
    }

    fn write_back(&mut self, blocks: &Range<u64>, fails_at: Option<usize>) {
        let pages = Self::page_of(blocks.start)..blocks.end.div_ceil(One::<KIB>::BLOCKS);
        let flushed = RefCell::new(Vec::new());
        let result = self.mapped.write_back(pages, |pages| {
            // In this single thread, waiting for a locked entry would end the test.
            drop(self.mapped.tree().find(pages.start));
            if fails_at == Some(flushed.borrow().len()) {
                return Err(Errno::IO);
            }
            flushed.borrow_mut().push(pages);
            Ok(())
        });
        let is_flushed = |block: &u64| flushed.borrow().iter().any(|pages| pages.contains(&Self::page_of(*block)));
        if result != Err(Errno::IO) {
            assert_eq!(result, Ok(()));
            for block in self.dirty.iter().filter(|block| blocks.contains(block)) {
                assert!(is_flushed(block), "block {block} is not flushed");
                let is_writable = |view: &Arc<Table>| view.is_writable(*block);
                assert!(!self.views.iter().any(is_writable), "block {block} may be stored to unseen");
            }
        }
        self.dirty.retain(|block| !is_flushed(block));
    }

    fn release(&self, index: u64) {
        // The second call finds it idle.
        if !self.mapped.release(index) {
            assert!(self.mapped.release(index));
        }
        let pages = index * One::<KIB>::HUGE..(index + 1) * One::<KIB>::HUGE;
        for view in &self.views {
            let left = view.entries.lock().range(pages.clone()).any(|(_, entry)| !matches!(entry, Entry::Copy(_)));
            assert!(!left, "a page of {index} is still mapped");
        }
    }

    fn resize(&mut self, len_bytes: u64, fails: bool) {
        if len_bytes >= self.disk.len_bytes.get() {
            self.disk.resize(len_bytes);
        } else if fails {
            self.mapped.revoke(len_bytes..u64::MAX / 2, false);
        } else {
            self.mapped.revoke(len_bytes..u64::MAX / 2, true);
            self.disk.resize(len_bytes);
            self.mapped.changed(Change::Cut { len_bytes });
            let (blocks, pages) = (self.disk.blocks(), len_bytes.div_ceil(Self::PAGE_LEN));
            self.file.split_off(&blocks);
            self.dirty.split_off(&blocks);
            // The page in which the file ends stays copied.
            self.copies.split_off(&pages);
            let last = |view: &Arc<Table>| view.entries.lock().last_key_value().map(|(&page, _)| page);
            assert!(self.views.iter().all(|view| last(view).is_none_or(|page| page < pages)));
        }
    }

    fn check(&self) {
        if self.disk.is_unstable {
            let is_durable = |block: u64| self.disk.places.borrow().get(&block) == Some(&true);
            assert!(
                (0..BLOCKS).all(|block| !self.views[SYNC].is_writable(block) || is_durable(block)),
                "a store would be lost"
            );
        }
        for (page, values) in &self.copies {
            for (block, value) in (page * One::<KIB>::BLOCKS..).zip(values) {
                assert_eq!(self.views[PRIVATE].load(block, &self.disk), Some(*value), "block {block}");
            }
        }
        assert!(self.mapped.tree().nodes() <= BLOCKS.div_ceil(BLOCKS_PER_HUGE) as usize);
    }
}

fn run<const KIB: u64>(has_holes: bool, is_unstable: bool, steps: Vec<Step>) {
    let mut world = World::<KIB>::new(has_holes, is_unstable);
    steps.into_iter().for_each(|step| world.take(step));
    world.take(Step::Remap);
    // Nothing is mapped any more; stores must be durable nevertheless.
    world.take(Step::WriteBack { blocks: 0..u64::MAX, fails_at: None });
    assert!(world.dirty.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mappings_show_what_a_plain_map_of_blocks_has(has_holes: bool, is_unstable: bool, steps in steps()) {
        run::<4>(has_holes, is_unstable, steps);
    }

    #[test]
    fn mappings_of_pages_of_16_kib_show_the_same(has_holes: bool, is_unstable: bool, steps in steps()) {
        run::<16>(has_holes, is_unstable, steps);
    }

    #[test]
    fn mappings_of_pages_of_64_kib_show_the_same(has_holes: bool, is_unstable: bool, steps in steps()) {
        run::<64>(has_holes, is_unstable, steps);
    }
}
