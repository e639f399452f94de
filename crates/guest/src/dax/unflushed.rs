//! Pages of a file that were stored to, whose entries were removed, and that still have to be flushed.
//!
//! An entry of the [tree](super::entry) carries its own dirty mark. The mark moves here when the entry is removed
//! (reclaim, truncation, the last unmapping) and when a flush of it begins. A flush that is under way keeps its pages
//! listed, so that a second flush of the same pages does not return before they are durable.
//!
//! Memory: 72 bytes for each 2 MiB with such a page.

use alloc::{collections::BTreeMap, vec::Vec};
use core::ops::Range;

use super::{RANGE_LEN, entry::Order, pin::Change};
use crate::platform::PageSize;

/// One bit for each page of an aligned 2 MiB, of which there are fewer if pages are larger.
type Bits = [u64; (PageSize::Kib4.pages_per_huge() / 64) as usize];

/// The marks of one file.
pub(super) struct Unflushed {
    size: PageSize,
    /// By the number of the 2 MiB. No value is empty.
    waiting: BTreeMap<u64, Bits>,
    /// Bounded by the number of flushing threads.
    flushing: Vec<Flush>,
    next_id: u64,
}

struct Flush {
    id: u64,
    index: u64,
    bits: Bits,
}

impl Unflushed {
    pub(super) fn new(size: PageSize) -> Self {
        Self { size, waiting: BTreeMap::new(), flushing: Vec::new(), next_id: 0 }
    }

    /// Marks `pages`.
    pub(super) fn add(&mut self, pages: Range<u64>) {
        let mut at = pages.start;
        while at < pages.end {
            let index = at / self.size.pages_per_huge();
            let bits = self.waiting.entry(index).or_default();
            let end = pages.end.min(Order::Huge.pages(at, self.size).end);
            for (word, bit) in (at..end).map(|page| place(page, self.size)) {
                bits[word] |= bit;
            }
            at = end;
        }
    }

    /// Returns the numbers of the 2 MiB within `pages` that have marks.
    pub(super) fn indices(&self, pages: &Range<u64>) -> Vec<u64> {
        let nodes = self.size.huge_of(pages);
        let flushing = self.flushing.iter().map(|flush| flush.index).filter(|index| nodes.contains(index));
        self.waiting.range(nodes.clone()).map(|(&index, _)| index).chain(flushing).collect()
    }

    /// Begins to flush the marked pages of the 2 MiB with number `index`, including those that other threads are
    /// flushing. Returns the number for [`Self::end`], and the pages; `None` if there are no such pages.
    pub(super) fn begin(&mut self, index: u64) -> Option<(u64, Vec<Range<u64>>)> {
        let mut bits = self.waiting.remove(&index).unwrap_or_default();
        for flush in self.flushing.iter().filter(|flush| flush.index == index) {
            bits.iter_mut().zip(flush.bits).for_each(|(word, other)| *word |= other);
        }
        if is_empty(&bits) {
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        self.flushing.push(Flush { id, index, bits });
        Some((id, runs(index, &bits, self.size)))
    }

    /// Ends a flush. If it failed, its pages are marked again.
    pub(super) fn end(&mut self, id: u64, is_flushed: bool) {
        let Some(at) = self.flushing.iter().position(|flush| flush.id == id) else { return };
        let Flush { index, bits, .. } = self.flushing.swap_remove(at);
        if !is_flushed && !is_empty(&bits) {
            let waiting = self.waiting.entry(index).or_default();
            waiting.iter_mut().zip(bits).for_each(|(word, other)| *word |= other);
        }
    }

    /// Adjusts the marks to a change of the file.
    pub(super) fn change(&mut self, change: Change) {
        match change {
            Change::Cut { len_bytes } => self.remove_from(len_bytes.div_ceil(self.size.bytes())),
            Change::Moved { from_bytes, to_bytes } => self.shift(from_bytes, to_bytes),
        }
    }

    /// Removes the marks from `page` on: the file ends there.
    fn remove_from(&mut self, page: u64) {
        let (index, size) = (page / self.size.pages_per_huge(), self.size);
        let mut gone = self.waiting.split_off(&index);
        if let Some(mut bits) = gone.remove(&index) {
            clear_from(&mut bits, index, page, size);
            if !is_empty(&bits) {
                self.waiting.insert(index, bits);
            }
        }
        self.flushing.iter_mut().for_each(|flush| clear_from(&mut flush.bits, flush.index, page, size));
    }

    /// Moves the marks at and after `from` to `to`. Pages that are being flushed are marked once more, because the
    /// flush may have looked for them at the old place.
    fn shift(&mut self, from: u64, to: u64) {
        let (first, size) = (from.min(to) / RANGE_LEN, self.size);
        let flushing = self.flushing.iter().filter(|flush| flush.index >= first).map(|flush| (flush.index, flush.bits));
        let affected = self.waiting.split_off(&first).into_iter().chain(flushing);
        for pages in affected.flat_map(|(index, bits)| runs(index, &bits, size)).collect::<Vec<_>>() {
            let (start, end) = (pages.start * size.bytes(), pages.end * size.bytes());
            if start < from.min(to) {
                self.add(pages.start..end.min(from.min(to)).div_ceil(size.bytes()));
            }
            if end > from {
                let moved = |at: u64| (at - from).saturating_add(to);
                self.add(moved(start.max(from)) / size.bytes()..moved(end).div_ceil(size.bytes()));
            }
        }
    }
}

/// Returns the word and the bit of `page`.
fn place(page: u64, size: PageSize) -> (usize, u64) {
    let at = page % size.pages_per_huge();
    ((at / 64) as usize, 1 << (at % 64))
}

fn is_empty(bits: &Bits) -> bool {
    bits.iter().all(|&word| word == 0)
}

/// Clears the bits from `page` on, in the 2 MiB with number `index`.
fn clear_from(bits: &mut Bits, index: u64, page: u64, size: PageSize) {
    let own = Order::Huge.pages(index * size.pages_per_huge(), size);
    for gone in page.max(own.start)..own.end {
        let (word, bit) = place(gone, size);
        bits[word] &= !bit;
    }
}

/// Returns the runs of marked pages, in pages of the file.
fn runs(index: u64, bits: &Bits, size: PageSize) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for page in Order::Huge.pages(index * size.pages_per_huge(), size) {
        let (word, bit) = place(page, size);
        if bits[word] & bit == 0 {
            continue;
        }
        match runs.last_mut() {
            Some(last) if last.end == page => last.end += 1,
            _ => runs.push(page..page + 1),
        }
    }
    runs
}
