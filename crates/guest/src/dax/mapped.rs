//! A file that is mapped: its tree of entries, and the views of all who map it.

use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;

use super::{
    PageTables,
    entry::{Order, PAGE_LEN, PAGES_PER_HUGE, Tree},
    fault::{Backing, Fault, Outcome, View, fault, finish_sync},
};
use crate::{
    Errno, Platform,
    sync::{Mutex, rank},
};

/// What the mappings of one file have in common.
pub struct Mapped<P: Platform> {
    tree: Tree<P>,
    views: Mutex<P, { rank::LEAF }, Vec<Arc<dyn View>>>,
}

impl<P: Platform> Default for Mapped<P> {
    fn default() -> Self {
        Self { tree: Tree::default(), views: Mutex::default() }
    }
}

impl<P: Platform> Mapped<P> {
    /// The entries.
    pub fn tree(&self) -> &Tree<P> {
        &self.tree
    }

    /// Has `view` take part in what takes pages away.
    pub fn attach(&self, view: Arc<dyn View>) {
        self.views.lock().push(view);
    }

    /// Ends that: nothing is installed in `view` any more. With the last view all entries go.
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

    /// Serves a fault; see [`fault`].
    pub fn fault<B: Backing>(&self, backing: &B, view: &dyn View, wanted: Fault) -> Outcome {
        fault(&self.tree, backing, view, &|pages| self.zap(&pages, false), wanted)
    }

    /// Serves a fault as far as it takes: by a smaller entry, and after `sync` has made pages durable.
    pub fn fault_through<B: Backing>(
        &self,
        backing: &B,
        view: &dyn View,
        wanted: Fault,
        sync: impl FnOnce(Range<u64>) -> Result<(), Errno>,
    ) -> Outcome {
        let mut wanted = wanted;
        let mut outcome = self.fault(backing, view, wanted);
        if outcome == Outcome::FallBack {
            wanted.order = Order::Small;
            outcome = self.fault(backing, view, wanted);
        }
        match outcome {
            Outcome::NeedsSync(unsettled) => {
                let synced = sync(unsettled.pages.clone());
                let finished = finish_sync(&self.tree, backing, view, wanted, &unsettled, synced);
                finished.map_or_else(Outcome::Failed, |()| Outcome::Installed)
            }
            outcome => outcome,
        }
    }

    /// Flushes what was stored to `pages`, to within an entry: has the next store to each fault, then calls `flush` with them, and
    /// takes the mark away where that succeeds. Stores meanwhile mark anew.
    ///
    /// Waits for faults under way.
    pub fn write_back(
        &self,
        pages: Range<u64>,
        mut flush: impl FnMut(Range<u64>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        for index in self.tree.indices(pages) {
            let mut entries = self.tree.lock_all(index);
            let dirty: Vec<_> = entries.dirty().collect();
            for pages in &dirty {
                self.views().iter().for_each(|view| view.write_protect(pages.clone()));
            }
            dirty.into_iter().try_for_each(&mut flush)?;
            entries.clear_dirty();
        }
        Ok(())
    }

    fn take_out(&self, index: u64) {
        let entries = self.tree.lock_all(index);
        self.zap(&Order::Huge.pages(index * PAGES_PER_HUGE), false);
        entries.remove();
    }

    fn zap(&self, pages: &Range<u64>, with_copies: bool) {
        self.views().iter().for_each(|view| view.zap(pages.clone(), with_copies));
    }

    /// Called without the lock: what they do takes locks of their own.
    fn views(&self) -> Vec<Arc<dyn View>> {
        self.views.lock().clone()
    }
}

impl<P: Platform> PageTables for Mapped<P> {
    fn release(&self, index: u64) -> bool {
        let Some(entries) = self.tree.try_lock_idle(index) else { return false };
        if !entries.is_empty() {
            self.zap(&Order::Huge.pages(index * PAGES_PER_HUGE), false);
            entries.remove();
        }
        true
    }

    /// Of what is shared, to within 2 MiB; of copies, to within a page. Waits for pinned pages too.
    fn revoke(&self, bytes: Range<u64>, with_copies: bool) {
        let pages = bytes.start / PAGE_LEN..bytes.end.div_ceil(PAGE_LEN);
        self.tree.layout_busy(pages.clone());
        self.tree.indices(pages).into_iter().for_each(|index| self.take_out(index));
        if with_copies {
            self.zap(&(bytes.start.div_ceil(PAGE_LEN)..bytes.end.div_ceil(PAGE_LEN)), true);
        }
    }
}
