//! Runs of free pages in a pool: a bitmap, searched by words, first fit from the end of the last run.
//!
//! Long-lived runs come from the upper half while it has room: scattered among the short-lived ones they would leave no
//! long run free.

use alloc::{vec, vec::Vec};

/// The allocation unit of a pool, in bytes: addresses of rings and buffers are multiples of it.
pub(super) const PAGE: usize = 4096;

/// Which pages of a pool are in use.
#[derive(Debug)]
pub(super) struct Pages {
    /// One bit per page, set while in use. Bits past the last page are set.
    used: Vec<u64>,
    count: usize,
    free: usize,
    /// Where the next search begins.
    next: usize,
}

impl Pages {
    /// Creates `count` free pages.
    pub(super) fn new(count: usize) -> Self {
        let mut used = vec![0; count.div_ceil(64)];
        let in_last = count % 64;
        if let Some(last) = used.last_mut().filter(|_| in_last != 0) {
            *last = !0 << in_last;
        }
        Self { used, count, free: count, next: 0 }
    }

    pub(super) fn used(&self) -> usize {
        self.count - self.free
    }

    /// Returns how many more pages may be taken long-term: half of all, minus those in use.
    pub(super) fn keepable(&self) -> usize {
        self.upper().saturating_sub(self.used())
    }

    /// Takes `len` pages in a row, at least 1; returns the first.
    pub(super) fn take(&mut self, len: usize) -> Option<usize> {
        let start = self.take_from(self.next, len)?;
        self.next = start + len;
        Some(start)
    }

    /// As [`Self::take`], for pages that are kept long-term.
    pub(super) fn take_for_long(&mut self, len: usize) -> Option<usize> {
        self.take_from(self.upper(), len)
    }

    fn take_from(&mut self, from: usize, len: usize) -> Option<usize> {
        if len > self.free {
            return None;
        }
        let start = self.find(from, len).or_else(|| self.find(0, len))?;
        self.set(start, len, true);
        self.free -= len;
        Some(start)
    }

    /// Returns the first page of the upper half.
    fn upper(&self) -> usize {
        self.count / 2
    }

    /// Frees `len` pages starting at `start`, which were taken together.
    pub(super) fn give(&mut self, start: usize, len: usize) {
        self.set(start, len, false);
        self.free += len;
        // Recently used pages are likely to be in the processor's caches.
        if start < self.upper() {
            self.next = start;
        }
    }

    fn find(&self, from: usize, len: usize) -> Option<usize> {
        let mut start = self.first(from, false)?;
        loop {
            let end = start.checked_add(len).filter(|&end| end <= self.count)?;
            match self.first(start, true) {
                Some(used) if used < end => start = self.first(used, false)?,
                _ => return Some(start),
            }
        }
    }

    /// Returns the first page from `from` on that is in use, or free.
    fn first(&self, from: usize, is_used: bool) -> Option<usize> {
        let flip = if is_used { 0 } else { !0 };
        let mut ignored = !0 << (from % 64);
        for (index, word) in self.used.iter().enumerate().skip(from / 64) {
            let hits = (word ^ flip) & ignored;
            if hits != 0 {
                let page = index * 64 + hits.trailing_zeros() as usize;
                return (page < self.count).then_some(page);
            }
            ignored = !0;
        }
        None
    }

    fn set(&mut self, start: usize, len: usize, is_used: bool) {
        for page in start..start + len {
            let bit = 1 << (page % 64);
            debug_assert_ne!(self.used[page / 64] & bit != 0, is_used, "page {page} is taken or given twice");
            if is_used {
                self.used[page / 64] |= bit;
            } else {
                self.used[page / 64] &= !bit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_never_overlap_and_are_found_while_there_are_any(
            count in 1usize..200,
            steps in prop::collection::vec((any::<bool>(), 1usize..20, any::<prop::sample::Index>()), 1..200),
            is_for_long in any::<bool>(),
        ) {
            let mut pages = Pages::new(count);
            let mut model = vec![false; count];
            let mut live: Vec<(usize, usize)> = Vec::new();
            for (is_taken, len, which) in steps {
                if is_taken || live.is_empty() {
                    match if is_for_long { pages.take_for_long(len) } else { pages.take(len) } {
                        Some(start) => {
                            prop_assert!(model[start..start + len].iter().all(|used| !used));
                            model[start..start + len].fill(true);
                            live.push((start, len));
                        }
                        None => prop_assert!(!model.windows(len).any(|run| run.iter().all(|used| !used))),
                    }
                } else {
                    let (start, len) = live.swap_remove(which.index(live.len()));
                    pages.give(start, len);
                    model[start..start + len].fill(false);
                }
                prop_assert_eq!(pages.used(), model.iter().filter(|used| **used).count());
            }
        }
    }

    #[test]
    fn what_is_kept_for_long_leaves_the_lower_half_in_one_piece() {
        let mut pages = Pages::new(256);
        let mut kept = Vec::new();
        while pages.keepable() > 0 {
            let short = pages.take(16).unwrap();
            kept.push(pages.take_for_long(4).unwrap());
            pages.give(short, 16);
        }
        assert_eq!(kept.len(), 32);
        assert!(kept.iter().all(|&start| start >= 128), "{kept:?}");
        assert_eq!(pages.take(128), Some(0));
    }
}
