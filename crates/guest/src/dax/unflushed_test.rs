//! The record of unflushed pages, compared with a plain set.

extern crate std;

use alloc::vec::Vec;
use core::ops::Range;
use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{pin::Change, unflushed::Unflushed};
use crate::platform::PageSize;

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

/// Blocks in a page.
const PARTS: u64 = 4;

fn steps(size: PageSize) -> impl Strategy<Value = Vec<Step>> {
    let (huge, page_len) = (size.pages_per_huge(), size.bytes());
    let page = move || prop_oneof![0..3 * huge, (0..4u64).prop_map(move |index| (index * huge).saturating_sub(1))];
    // File systems move by blocks, which may be parts of a page.
    let bytes = move || (page(), 0..PARTS, 1..huge + huge / 6, 0..PARTS);
    let bytes = move || {
        bytes().prop_map(move |(page, part, len, more)| {
            let start = page * page_len + part * page_len / PARTS;
            start..start + len * page_len + more * page_len / PARTS
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
fn moved(pages: &BTreeSet<u64>, from: u64, to: u64, page_len: u64) -> BTreeSet<u64> {
    let blocks = pages.iter().flat_map(|page| (0..PARTS).map(move |part| page * page_len + part * page_len / PARTS));
    let places = blocks.filter_map(|at| match at {
        at if at >= from => Some(at - from + to),
        at if at < to => Some(at),
        _ => None,
    });
    places.map(|at| at / page_len).collect()
}

fn run(size: PageSize, steps: Vec<Step>) {
    let (huge, page_len) = (size.pages_per_huge(), size.bytes());
    let mut unflushed = Unflushed::new(size);
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
                let wanted = index * huge..(index + 1) * huge;
                let expected: BTreeSet<_> = dirty.range(wanted.clone()).copied().collect();
                let known = unflushed.indices(&(wanted.start + 5..wanted.start + 6)).contains(&index);
                let begun = unflushed.begin(index);
                assert!(expected.is_empty() || known && begun.is_some());
                if let Some((id, pages)) = begun {
                    let pages: BTreeSet<_> = pages.into_iter().flatten().collect();
                    assert!(pages.is_superset(&expected) && pages.iter().all(|page| wanted.contains(page)));
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
                unflushed.change(Change::Cut { len_bytes: (pages * page_len).saturating_sub(100) });
                dirty.split_off(&pages);
            }
            Step::Collapse(bytes) => {
                unflushed.change(Change::Moved { from_bytes: bytes.end, to_bytes: bytes.start });
                dirty = moved(&dirty, bytes.end, bytes.start, page_len);
                // They have looked at the old places.
                flushes.iter_mut().for_each(|(_, pages)| pages.retain(|page| (page + 1) * page_len <= bytes.start));
            }
            Step::Insert(bytes) => {
                unflushed.change(Change::Moved { from_bytes: bytes.start, to_bytes: bytes.end });
                dirty = moved(&dirty, bytes.start, bytes.end, page_len);
                flushes.iter_mut().for_each(|(_, pages)| pages.retain(|page| (page + 1) * page_len <= bytes.start));
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
    assert!(unflushed.indices(&(0..u64::MAX)).is_empty());
}

/// A page that is cut off during a flush is not marked again if the flush fails.
#[test]
fn what_is_cut_off_during_a_flush_that_fails_is_forgotten() {
    for size in [PageSize::Kib4, PageSize::Kib16, PageSize::Kib64] {
        for index in 0..3 {
            let mut unflushed = Unflushed::new(size);
            let first = index * size.pages_per_huge();
            unflushed.add(first + 3..first + 8);
            let (id, _) = unflushed.begin(index).unwrap();
            unflushed.change(Change::Cut { len_bytes: (first + 5) * size.bytes() });
            unflushed.end(id, false);
            let (_, pages) = unflushed.begin(index).unwrap();
            assert_eq!(pages.into_iter().flatten().collect::<Vec<_>>(), [first + 3, first + 4], "{size:?} {index}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_page_that_was_stored_to_is_flushed_wherever_it_is_by_then(steps in steps(PageSize::Kib4)) {
        run(PageSize::Kib4, steps);
    }

    #[test]
    fn so_is_every_page_of_16_kib(steps in steps(PageSize::Kib16)) {
        run(PageSize::Kib16, steps);
    }

    #[test]
    fn so_is_every_page_of_64_kib(steps in steps(PageSize::Kib64)) {
        run(PageSize::Kib64, steps);
    }
}
