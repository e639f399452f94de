//! Free descriptors, linked by index as they will be in a chain.

use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct FreeList {
    /// By descriptor: the next one in the list or in its chain.
    next: Vec<u16>,
    first: u16,
    count: u16,
}

impl FreeList {
    pub(super) fn new(count: u16) -> Self {
        Self { next: (1..=count).collect(), first: 0, count }
    }

    /// Takes `wanted` descriptors, at least 1, linked to each other; returns the first.
    pub(super) fn take(&mut self, wanted: u16) -> Option<u16> {
        if wanted > self.count {
            return None;
        }
        let head = self.first;
        let last = (1..wanted).fold(head, |at, _| self.next(at));
        self.first = self.next(last);
        self.count -= wanted;
        Some(head)
    }

    /// Frees a chain that [`Self::take`] returned.
    pub(super) fn give(&mut self, head: u16, taken: u16) {
        let last = (1..taken).fold(head, |at, _| self.next(at));
        self.next[usize::from(last)] = self.first;
        self.first = head;
        self.count += taken;
    }

    /// Returns the descriptor after `descriptor` in its chain.
    pub(super) fn next(&self, descriptor: u16) -> u16 {
        self.next.get(usize::from(descriptor)).copied().unwrap_or(0)
    }
}
