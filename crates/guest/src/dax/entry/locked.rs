//! One entry, locked for a fault.

use core::ops::Range;

use super::{Kind, Order, Tree, node::Entry};
use crate::platform::Platform;

/// An entry that nobody else changes until this is dropped. An entry that is still empty is then removed.
#[must_use = "it is unlocked at once"]
pub struct Locked<'t, P: Platform> {
    tree: &'t Tree<P>,
    order: Order,
    /// Its first page.
    page: u64,
    entry: Entry,
    is_in_tree: bool,
}

impl<'t, P: Platform> Locked<'t, P> {
    pub(super) fn new(tree: &'t Tree<P>, order: Order, page: u64, entry: Entry) -> Self {
        Self { tree, order, page: order.first_page(page, P::PAGE_SIZE), entry, is_in_tree: true }
    }

    /// Returns the entry's order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Returns the entry's pages.
    pub fn pages(&self) -> Range<u64> {
        self.order.pages(self.page, P::PAGE_SIZE)
    }

    /// Returns a number that changes when this entry, or another one of the same 2 MiB, is removed. After unlocking and
    /// locking again, an unchanged stamp shows that the entry is still the same one.
    pub fn stamp(&self) -> Option<u64> {
        self.tree.stamp(self.page)
    }

    /// Returns what the entry maps.
    pub fn kind(&self) -> Kind {
        self.entry.kind()
    }

    /// Sets what the entry maps; this counts as a use.
    pub fn set_kind(&mut self, kind: Kind) {
        self.entry = self.entry.with_kind(kind).with_young(true);
    }

    /// Returns whether the entry has stores to be flushed.
    pub fn is_dirty(&self) -> bool {
        self.entry.is_dirty()
    }

    /// Sets whether the entry has stores to be flushed.
    pub fn set_dirty(&mut self, is_dirty: bool) {
        self.entry = self.entry.with_dirty(is_dirty);
    }

    /// Removes the entry, whose pages are not in any page table any more, from the tree; every waiter for it tries
    /// again.
    pub fn remove(mut self) {
        self.is_in_tree = false;
        let woken = self.tree.state.lock().remove(self.order, self.page);
        woken.wake();
    }

    /// Replaces this entry of 2 MiB, whose pages are not in any page table any more, with an empty entry for `page`
    /// alone.
    pub(super) fn split(mut self, page: u64) -> Self {
        debug_assert!(self.order == Order::Huge && self.kind() != Kind::Real, "an entry with bytes is not split");
        self.is_in_tree = false;
        let mut state = self.tree.state.lock();
        let woken = state.remove(self.order, self.page);
        state.insert_small(page);
        drop(state);
        woken.wake();
        Self::new(self.tree, Order::Small, page, Entry::NEW)
    }
}

impl<P: Platform> Drop for Locked<'_, P> {
    fn drop(&mut self) {
        if self.is_in_tree {
            let woken = self.tree.state.lock().unlock(self.order, self.page, self.entry);
            woken.wake();
        }
    }
}
