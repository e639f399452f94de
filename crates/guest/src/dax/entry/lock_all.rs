//! Locks all entries of an aligned 2 MiB at once, for truncation, reclaim and write-back.

use alloc::vec::Vec;
use core::ops::Range;

use super::{
    Order, Tree,
    node::Entry,
    tree::{Key, State},
};
use crate::platform::Platform;

/// The locked entries. Does not include entries that faults add meanwhile.
#[must_use = "they are unlocked at once"]
pub struct LockedAll<'t, P: Platform> {
    tree: &'t Tree<P>,
    index: u64,
    entries: Vec<(Order, u64, Entry)>,
}

impl<P: Platform> Tree<P> {
    /// Locks every entry of the 2 MiB with number `index`, one after the other. Blocks while another thread has locked
    /// one of them.
    pub fn lock_all(&self, index: u64) -> LockedAll<'_, P> {
        let Range { start: first, end } = pages_of::<P>(index);
        let mut all = LockedAll { tree: self, index, entries: Vec::new() };
        let mut page = first;
        while page < end {
            let mut state = self.state.lock();
            match all.lock_from(&mut state, page) {
                // The entry is looked up again: it may be gone, or have another order.
                Some((is_at, key)) => {
                    page = is_at;
                    self.wait(state, key);
                }
                None => break,
            }
        }
        all
    }

    /// Locks every entry of the 2 MiB with number `index`, in order to remove them. Returns `None` if one is locked,
    /// pinned, or was used since the last such call.
    pub fn try_lock_idle(&self, index: u64) -> Option<LockedAll<'_, P>> {
        let Range { start: first, end } = pages_of::<P>(index);
        let mut state = self.state.lock();
        let Some(node) = state.nodes.get_mut(&index) else {
            return Some(LockedAll { tree: self, index, entries: Vec::new() });
        };
        let (mut is_idle, mut page) = (node.pins == 0, first);
        while let Some((order, at, entry)) = node.next(first, page) {
            is_idle &= !entry.is_locked() && !entry.is_young();
            if !entry.is_locked() {
                node.put(order, at, entry.with_young(false));
            }
            page = order.pages(at, P::PAGE_SIZE).end;
            if page >= end {
                break;
            }
        }
        if !is_idle {
            return None;
        }
        let mut all = LockedAll { tree: self, index, entries: Vec::new() };
        let is_locked = all.lock_from(&mut state, first);
        debug_assert!(is_locked.is_none(), "an idle entry is not locked");
        Some(all)
    }

    /// Returns the numbers of the 2 MiB within `pages` that have entries.
    pub fn indices(&self, pages: Range<u64>) -> Vec<u64> {
        self.state.lock().nodes.range(P::PAGE_SIZE.huge_of(&pages)).map(|(&index, _)| index).collect()
    }
}

impl<P: Platform> LockedAll<'_, P> {
    /// Locks the entries from `page` on, up to one that is already locked. Returns that entry's page, and what to wait
    /// for.
    fn lock_from(&mut self, state: &mut State<P>, mut page: u64) -> Option<(u64, Key)> {
        let Range { start: first, end } = pages_of::<P>(self.index);
        let node = state.nodes.get_mut(&self.index)?;
        while let Some((order, at, entry)) = node.next(first, page) {
            if entry.is_locked() {
                return Some((at, Key::Entry(at)));
            }
            let entry = entry.with_locked(true);
            node.put(order, at, entry);
            self.entries.push((order, at, entry));
            page = order.pages(at, P::PAGE_SIZE).end;
            if page >= end {
                break;
            }
        }
        None
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the pages of the dirty entries.
    pub fn dirty(&self) -> impl Iterator<Item = Range<u64>> {
        self.entries
            .iter()
            .filter(|(.., entry)| entry.is_dirty())
            .map(|&(order, page, _)| order.pages(page, P::PAGE_SIZE))
    }

    /// Marks all entries clean, after everything was flushed.
    pub fn clear_dirty(&mut self) {
        self.entries.iter_mut().for_each(|(.., entry)| *entry = entry.with_dirty(false));
    }

    /// Removes the entries, whose pages are not in any page table any more, from the tree.
    pub fn remove(mut self) {
        for (order, page, _) in core::mem::take(&mut self.entries) {
            let woken = self.tree.state.lock().remove(order, page);
            woken.wake();
        }
    }
}

impl<P: Platform> Drop for LockedAll<'_, P> {
    fn drop(&mut self) {
        for &(order, page, entry) in &self.entries {
            let woken = self.tree.state.lock().unlock(order, page, entry);
            woken.wake();
        }
    }
}

/// Returns the pages of the 2 MiB with number `index`.
fn pages_of<P: Platform>(index: u64) -> Range<u64> {
    let count = P::PAGE_SIZE.pages_per_huge();
    index * count..(index + 1) * count
}
