//! The record of unflushed pages, compared with a plain set.

extern crate std;

use alloc::vec::Vec;
use core::ops::Range;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    entry::{PAGE_LEN, PAGES_PER_HUGE},
    pin::Change,
    unflushed::Unflushed,
};

#[derive(Debug, Clone)]
enum Step {
    Add(u64),
    /// Begins flushes of a 2 MiB, one of them twice.
    Begin(u64),
    /// Ends the oldest flush.
    End(bool),
    Cut(u64),
    Collapse(Range<u64>),
    Insert(Range<u64>),
}

const PAGES: u64 = 3 * PAGES_PER_HUGE;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let page = || prop_oneof![0..PAGES, (0..4u64).prop_map(|index| (index * PAGES_PER_HUGE).saturating_sub(1))];
    // File systems with small blocks move by parts of a page.
    let bytes = || (page(), 0..4u64, 1..600u64, 0..4u64);
    let bytes = move || {
        bytes().prop_map(|(page, part, len, more)| {
            let start = page * PAGE_LEN + part * 1024;
            start..start + len * PAGE_LEN + more * 1024
        })
    };
    let step = prop_oneof![
        6 => page().prop_map(Step::Add),
        2 => (0..4u64).prop_map(Step::Begin),
        2 => any::<bool>().prop_map(Step::End),
        1 => page().prop_map(Step::Cut),
        1 => bytes().prop_map(Step::Collapse),
        1 => bytes().prop_map(Step::Insert),
    ];
    prop::collection::vec(step, 1..60)
}

/// Returns the pages after the bytes from `from..` were moved to `to..`. Pages in between are gone.
fn moved(pages: &BTreeSet<u64>, from: u64, to: u64) -> BTreeSet<u64> {
    let blocks = pages.iter().flat_map(|page| (0..4u64).map(move |part| page * PAGE_LEN + part * 1024));
    let places = blocks.filter_map(|at| match at {
        at if at >= from => Some(at - from + to),
        at if at < to => Some(at),
        _ => None,
    });
    places.map(|at| at / PAGE_LEN).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_that_was_stored_to_is_flushed_wherever_it_is_by_then(steps in steps()) {
        let mut unflushed = Unflushed::default();
        // The dirty pages, and those that each flush in progress has seen, by the oracle.
        let mut dirty = BTreeSet::new();
        let mut flushes: Vec<(u64, BTreeSet<u64>)> = Vec::new();
        for step in steps {
            match step {
                Step::Add(page) => {
                    unflushed.add(page..page + 1);
                    dirty.insert(page);
                    // It was stored to after they began.
                    flushes.iter_mut().for_each(|(_, pages)| _ = pages.remove(&page));
                }
                Step::Begin(index) => {
                    let wanted = index * PAGES_PER_HUGE..(index + 1) * PAGES_PER_HUGE;
                    let expected: BTreeSet<_> = dirty.range(wanted.clone()).copied().collect();
                    let known = unflushed.indices(&(wanted.start + 5..wanted.start + 6)).contains(&index);
                    let begun = unflushed.begin(index);
                    prop_assert!(expected.is_empty() || known && begun.is_some());
                    if let Some((id, pages)) = begun {
                        let pages: BTreeSet<_> = pages.into_iter().flatten().collect();
                        prop_assert!(pages.is_superset(&expected) && pages.iter().all(|page| wanted.contains(page)));
                        flushes.push((id, pages));
                    }
                }
                Step::End(is_flushed) => {
                    if flushes.is_empty() {
                        continue;
                    }
                    let (id, pages) = flushes.remove(0);
                    unflushed.end(id, is_flushed);
                    if is_flushed {
                        dirty.retain(|page| !pages.contains(page));
                    }
                }
                Step::Cut(pages) => {
                    unflushed.change(Change::Cut { len_bytes: (pages * PAGE_LEN).saturating_sub(100) });
                    dirty.split_off(&pages);
                }
                Step::Collapse(bytes) => {
                    unflushed.change(Change::Moved { from_bytes: bytes.end, to_bytes: bytes.start });
                    dirty = moved(&dirty, bytes.end, bytes.start);
                    // They have looked at the old places.
                    flushes.iter_mut().for_each(|(_, pages)| pages.retain(|page| (page + 1) * PAGE_LEN <= bytes.start));
                }
                Step::Insert(bytes) => {
                    unflushed.change(Change::Moved { from_bytes: bytes.start, to_bytes: bytes.end });
                    dirty = moved(&dirty, bytes.start, bytes.end);
                    flushes.iter_mut().for_each(|(_, pages)| pages.retain(|page| (page + 1) * PAGE_LEN <= bytes.start));
                }
            }
        }
        // No mark is left over forever.
        for (id, _) in flushes {
            unflushed.end(id, true);
        }
        for index in unflushed.indices(&(0..u64::MAX)) {
            if let Some((id, _)) = unflushed.begin(index) {
                unflushed.end(id, true);
            }
        }
        prop_assert!(unflushed.indices(&(0..u64::MAX)).is_empty());
    }
}
