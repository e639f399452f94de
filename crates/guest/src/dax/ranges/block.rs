//! Blocking parts of a file while the file is changed there.

use alloc::vec::Vec;
use core::ops::Range as Span;

use super::Ranges;
use crate::{
    Platform,
    dax::{Change, RANGE_LEN},
    volume::Inode,
};

/// Parts of a file that nobody may pin, and whose ranges nobody else removes.
#[must_use = "the parts may be pinned at once"]
pub(crate) struct Blocked<'i, P: Platform> {
    ranges: &'i Ranges<P>,
    span: Span<u64>,
}

impl<P: Platform> Inode<P> {
    /// Blocks pinning of the parts of the file that `bytes` touch, and removes their pages from all page tables, until
    /// the returned value is dropped. Returns `None` if the file has no ranges.
    ///
    /// Waits for pins. The caller holds `size_lock`, and no pin.
    pub(crate) fn block(&self, bytes: Span<u64>, with_copies: bool) -> Option<Blocked<'_, P>> {
        self.ranges().map(|ranges| ranges.block(bytes, with_copies))
    }
}

impl<P: Platform> Ranges<P> {
    /// See [`Inode::block`]. One at a time.
    pub(super) fn block(&self, bytes: Span<u64>, with_copies: bool) -> Blocked<'_, P> {
        let span = bytes.start / RANGE_LEN..bytes.end.div_ceil(RANGE_LEN);
        self.map.lock().blocked = Some(span.clone());
        let blocked = Blocked { ranges: self, span: span.clone() };
        let is_free = || {
            let map = self.map.lock();
            let mut inside = map.by_index.iter().filter(|(index, _)| span.contains(index));
            inside.all(|(_, range)| !range.is_busy && self.window.is_idle(range.slot))
        };
        self.window.wait(is_free, None);
        self.tables().iter().for_each(|tables| tables.revoke(bytes.clone(), with_copies));
        blocked
    }
}

impl<P: Platform> Blocked<'_, P> {
    /// Records that the server has made `change`.
    pub(crate) fn changed(&self, change: Change) {
        self.ranges.tables().iter().for_each(|tables| tables.changed(change));
    }

    /// Unmaps the ranges that lie completely after `end`, in bytes, of the file.
    pub(crate) fn unmap_behind(&self, inode: &Inode<P>, end: u64) {
        let slots = self.take_behind(end);
        if !slots.is_empty() {
            self.ranges.window.unmap(inode.session(), inode.nodeid(), &slots);
            self.ranges.window.put_free(slots);
        }
    }

    /// Removes the ranges that lie completely after `end`. Their slots then belong to the caller, and are still mapped.
    pub(super) fn take_behind(&self, end: u64) -> Vec<u32> {
        let first = end.div_ceil(RANGE_LEN);
        let mut map = self.ranges.map.lock();
        let gone = map.by_index.extract_if(|&index, _| index >= first && self.span.contains(&index));
        gone.map(|(_, range)| range.slot).collect()
    }
}

impl<P: Platform> Drop for Blocked<'_, P> {
    fn drop(&mut self) {
        self.ranges.map.lock().blocked = None;
        self.ranges.window.announce();
    }
}
