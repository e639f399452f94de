//! A mapped file: its tree of entries, and the views of all its mappings.

use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;

use super::{
    PageTables,
    entry::{LockedAll, Order, Tree},
    fault::{Backing, Fault, FaultOutcome, View, fault, finish_sync},
    pin::Change,
    unflushed::Unflushed,
};
use crate::{
    Errno, Platform,
    sync::{Mutex, rank},
};

/// State that the mappings of one file share.
///
/// It also records which pages were stored to and not flushed since. That record outlives the pages' entries and the
/// mappings.
pub struct Mapped<P: Platform> {
    tree: Tree<P>,
    views: Mutex<P, { rank::LEAF }, Vec<Arc<dyn View>>>,
    /// Pages that were stored to and whose entries were removed, or that are being flushed.
    unflushed: Mutex<P, { rank::LEAF }, Unflushed>,
}

impl<P: Platform> Default for Mapped<P> {
    fn default() -> Self {
        let unflushed = Mutex::new(Unflushed::new(P::PAGE_SIZE));
        Self { tree: Tree::default(), views: Mutex::default(), unflushed }
    }
}

impl<P: Platform> Mapped<P> {
    /// Returns the tree of entries.
    pub fn tree(&self) -> &Tree<P> {
        &self.tree
    }

    /// Attaches `view`, so that removed pages are also removed from it.
    pub fn attach(&self, view: Arc<dyn View>) {
        self.views.lock().push(view);
    }

    /// Detaches `view`, in which nothing is installed any more. Detaching the last view removes all entries; stores
    /// stay recorded.
    pub fn detach(&self, view: &Arc<dyn View>) {
        let mut views = self.views.lock();
        let place = views.iter().position(|other| Arc::ptr_eq(other, view));
        let gone = place.map(|place| views.swap_remove(place));
        let is_last = views.is_empty();
        drop(views);
        drop(gone);
        if is_last {
            self.tree.indices(0..u64::MAX).into_iter().for_each(|index| self.take_out(index));
        }
    }

    /// Serves a fault. See [`fault`].
    pub fn fault<B: Backing>(&self, backing: &B, view: &dyn View, wanted: Fault) -> FaultOutcome {
        fault(&self.tree, backing, view, &|pages| self.zap(&pages, false), wanted)
    }

    /// Serves a fault completely: falls back to a smaller entry if needed, and finishes it after `sync` has made pages
    /// durable.
    pub fn fault_through<B: Backing>(
        &self,
        backing: &B,
        view: &dyn View,
        wanted: Fault,
        sync: impl FnOnce(Range<u64>) -> Result<(), Errno>,
    ) -> FaultOutcome {
        let mut wanted = wanted;
        let mut outcome = self.fault(backing, view, wanted);
        if outcome == FaultOutcome::FallBack {
            wanted.order = Order::Small;
            outcome = self.fault(backing, view, wanted);
        }
        match outcome {
            FaultOutcome::NeedsSync(unsettled) => {
                let synced = sync(unsettled.pages.clone());
                let finished = finish_sync(&self.tree, backing, view, wanted, &unsettled, synced);
                finished.map_or_else(FaultOutcome::Failed, |()| FaultOutcome::Installed)
            }
            outcome => outcome,
        }
    }

    /// Flushes stores to `pages`, rounded out to 2 MiB, wherever those pages are now: calls `flush` with every page
    /// that was stored to since it was last flushed. The next store to each of them faults. Stores during a flush count
    /// as new ones.
    ///
    /// No entry is locked during `flush`, which may send requests and block. The pages may have left the window: a
    /// flush by address has to pin them first. A page of an entry of 2 MiB may also lie outside the file.
    ///
    /// Blocks while a fault has locked one of the entries.
    ///
    /// # Errors
    /// The first error of `flush`; the pages stay recorded then.
    pub fn write_back(
        &self,
        pages: Range<u64>,
        mut flush: impl FnMut(Range<u64>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        // In this order, because marks move from entries to the record and never back.
        for index in self.tree.indices(pages.clone()) {
            let mut entries = self.tree.lock_all(index);
            self.record(&entries, |pages| self.views().iter().for_each(|view| view.write_protect(pages.clone())));
            entries.clear_dirty();
        }
        let mut indices = self.unflushed.lock().indices(&pages);
        indices.sort_unstable();
        indices.dedup();
        for index in indices {
            let begun = self.unflushed.lock().begin(index);
            let Some((id, pages)) = begun else { continue };
            let result = pages.into_iter().try_for_each(&mut flush);
            self.unflushed.lock().end(id, result.is_ok());
            result?;
        }
        Ok(())
    }

    /// Records the dirty pages of `entries`, after calling `protect` with them.
    fn record(&self, entries: &LockedAll<'_, P>, protect: impl Fn(&Range<u64>)) {
        for pages in entries.dirty() {
            protect(&pages);
            self.unflushed.lock().add(pages);
        }
    }

    fn take_out(&self, index: u64) {
        self.remove(index, self.tree.lock_all(index));
    }

    /// Removes the entries of the 2 MiB with number `index`, and their pages from page tables.
    fn remove(&self, index: u64, entries: LockedAll<'_, P>) {
        self.zap(&Order::Huge.pages(index * P::PAGE_SIZE.pages_per_huge(), P::PAGE_SIZE), false);
        self.record(&entries, |_| {});
        entries.remove();
    }

    fn zap(&self, pages: &Range<u64>, with_copies: bool) {
        self.views().iter().for_each(|view| view.zap(pages.clone(), with_copies));
    }

    /// Returns a copy, because views are called without the lock: they take locks of their own.
    fn views(&self) -> Vec<Arc<dyn View>> {
        self.views.lock().clone()
    }
}

impl<P: Platform> PageTables for Mapped<P> {
    fn release(&self, index: u64) -> bool {
        let Some(entries) = self.tree.try_lock_idle(index) else { return false };
        if !entries.is_empty() {
            self.remove(index, entries);
        }
        true
    }

    /// Removes shared pages by whole 2 MiB, and copies of pages that begin in `bytes`. Also waits for pinned pages.
    fn revoke(&self, bytes: Range<u64>, with_copies: bool) {
        let page_len = P::PAGE_SIZE.bytes();
        let pages = bytes.start / page_len..bytes.end.div_ceil(page_len);
        self.tree.layout_busy(pages.clone());
        self.tree.indices(pages.clone()).into_iter().for_each(|index| self.take_out(index));
        if with_copies {
            self.zap(&(bytes.start.div_ceil(page_len)..pages.end), true);
        }
    }

    fn changed(&self, change: Change) {
        self.unflushed.lock().change(change);
    }
}
