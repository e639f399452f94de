//! The tree of entries, and locking of its entries for faults.

use alloc::{collections::BTreeMap, sync::Arc, vec::Vec};
use core::ops::Range;

use super::{
    Kind, Locked, Order,
    node::{Entry, Node},
};
use crate::{
    platform::{Event as _, Platform},
    sync::{Mutex, MutexGuard, rank},
};

/// The entries of one file.
pub struct Tree<P: Platform> {
    pub(super) state: Mutex<P, { rank::LEAF }, State<P>>,
}

pub(super) struct State<P: Platform> {
    /// Nodes, by the number of their 2 MiB.
    pub(super) nodes: BTreeMap<u64, Node>,
    /// Sleeping threads, in the order of their arrival. Bounded by the number of waiting threads.
    waiters: Vec<Waiter<P>>,
    /// The next waiter's number.
    next_waiter: u64,
    /// The next stamp of a node.
    next_stamp: u64,
}

struct Waiter<P: Platform> {
    id: u64,
    key: Key,
    event: Arc<P::Event>,
}

/// The reason to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// The entry whose first page this is.
    Entry(u64),
    /// The pins of this node.
    Pins(u64),
}

/// The result of locking an entry for a fault.
pub enum Grab<'t, P: Platform> {
    /// The caller has locked the entry.
    Locked(Locked<'t, P>),
    /// There are entries of pages and one of 2 MiB was requested: the fault must be served with an entry of a page.
    FallBack,
}

/// Events of waiters that are to be woken once the tree's lock is free.
#[must_use]
pub(super) struct Woken<P: Platform>(Vec<Arc<P::Event>>);

impl<P: Platform> Woken<P> {
    pub(super) fn wake(self) {
        self.0.iter().for_each(|event| event.wake_all());
    }
}

impl<P: Platform> Default for Tree<P> {
    fn default() -> Self {
        Self { state: Mutex::new(State { nodes: BTreeMap::new(), waiters: Vec::new(), next_waiter: 0, next_stamp: 0 }) }
    }
}

impl<P: Platform> Tree<P> {
    /// Locks the entry that serves a fault of `order` on `page`; creates an empty one if there is no entry.
    ///
    /// A real entry of 2 MiB serves faults of a page, and so does one of zeros if nothing is stored. For a store, an
    /// entry of zeros is split: `unmap` removes its pages from page tables, with the entry locked, and an empty entry
    /// of the page replaces it. Blocks while another thread has locked the entry.
    pub fn grab(&self, page: u64, order: Order, is_write: bool, unmap: impl Fn(Range<u64>)) -> Grab<'_, P> {
        loop {
            let mut state = self.state.lock();
            let node = state.node(page / P::PAGE_SIZE.pages_per_huge());
            let (found, entry) = match node.find(page) {
                _ if order == Order::Huge && node.has_small() => return Grab::FallBack,
                None => {
                    node.put(order, page, Entry::NEW);
                    return Grab::Locked(Locked::new(self, order, page, Entry::NEW));
                }
                Some((found, entry)) if entry.is_locked() => {
                    self.wait(state, Key::Entry(found.first_page(page, P::PAGE_SIZE)));
                    continue;
                }
                Some(found) => found,
            };
            let entry = entry.with_locked(true);
            node.put(found, page, entry);
            drop(state);
            let locked = Locked::new(self, found, page, entry);
            if found == Order::Huge && order == Order::Small && is_write && entry.kind() != Kind::Real {
                unmap(locked.pages());
                return Grab::Locked(locked.split(page));
            }
            return Grab::Locked(locked);
        }
    }

    /// Locks the entry that contains `page`, if there is one. Blocks while another thread has locked it.
    pub fn find(&self, page: u64) -> Option<Locked<'_, P>> {
        loop {
            let mut state = self.state.lock();
            let node = state.nodes.get_mut(&(page / P::PAGE_SIZE.pages_per_huge()))?;
            let (order, entry) = node.find(page)?;
            if entry.is_locked() {
                self.wait(state, Key::Entry(order.first_page(page, P::PAGE_SIZE)));
                continue;
            }
            let entry = entry.with_locked(true);
            node.put(order, page, entry);
            return Some(Locked::new(self, order, page, entry));
        }
    }

    /// Returns a number that changes with every removal of an entry in the 2 MiB that contains `page`.
    pub(super) fn stamp(&self, page: u64) -> Option<u64> {
        self.state.lock().nodes.get(&(page / P::PAGE_SIZE.pages_per_huge())).map(|node| node.stamp)
    }

    /// Sleeps until another thread wakes the caller for `key`.
    pub(super) fn wait(&self, mut state: MutexGuard<'_, P, { rank::LEAF }, State<P>>, key: Key) {
        let (id, event) = (state.next_waiter, Arc::new(P::Event::default()));
        state.next_waiter += 1;
        state.waiters.push(Waiter { id, key, event: Arc::clone(&event) });
        drop(state);
        rank::may_wait::<P>();
        // The waking thread takes the waiter off the list first.
        event.wait(&mut || self.state.lock().waiters.iter().all(|waiter| waiter.id != id), None);
    }

    /// Pins `pages`: [`Self::layout_busy`] waits until they are unpinned. Takes memory for each 2 MiB of them.
    pub fn pin(&self, pages: Range<u64>) -> Pages<'_, P> {
        let mut state = self.state.lock();
        for index in P::PAGE_SIZE.huge_of(&pages) {
            state.node(index).pins += 1;
        }
        Pages { tree: self, pages }
    }

    /// Unpins pages that were pinned once.
    pub(super) fn unpin(&self, pages: &Range<u64>) {
        for index in P::PAGE_SIZE.huge_of(pages) {
            let mut state = self.state.lock();
            let Some(node) = state.nodes.get_mut(&index) else { continue };
            node.pins -= 1;
            if node.pins == 0 {
                state.shrink(index);
                let woken = state.wake_all(Key::Pins(index));
                drop(state);
                woken.wake();
            }
        }
    }

    /// Blocks until none of `pages`, rounded to 2 MiB, are pinned. The caller prevents new pins.
    pub fn layout_busy(&self, pages: Range<u64>) {
        loop {
            let state = self.state.lock();
            let pinned = state
                .nodes
                .range(P::PAGE_SIZE.huge_of(&pages))
                .find(|(_, node)| node.pins > 0)
                .map(|(&index, _)| index);
            let Some(index) = pinned else { break };
            self.wait(state, Key::Pins(index));
        }
    }

    /// Returns the number of 2 MiB that have entries, and so take memory.
    pub fn nodes(&self) -> usize {
        self.state.lock().nodes.len()
    }
}

/// Pinned pages.
#[must_use = "they are let go at once"]
pub struct Pages<'t, P: Platform> {
    tree: &'t Tree<P>,
    pages: Range<u64>,
}

impl<P: Platform> Drop for Pages<'_, P> {
    fn drop(&mut self) {
        self.tree.unpin(&self.pages);
    }
}

impl<P: Platform> State<P> {
    /// Returns the node of the 2 MiB with number `index`; creates it if it does not exist.
    fn node(&mut self, index: u64) -> &mut Node {
        let next = &mut self.next_stamp;
        self.nodes.entry(index).or_insert_with(|| Node::new(stamp(next), P::PAGE_SIZE))
    }

    /// Unlocks the entry at `page`, as `entry`: an empty one is removed, and all its waiters are woken; otherwise one
    /// waiter is woken.
    pub(super) fn unlock(&mut self, order: Order, page: u64, entry: Entry) -> Woken<P> {
        if entry.kind() == Kind::Empty {
            return self.remove(order, page);
        }
        let node = self.nodes.get_mut(&(page / P::PAGE_SIZE.pages_per_huge())).expect("a locked entry is in the tree");
        node.put(order, page, entry.with_locked(false));
        self.wake_one(Key::Entry(page))
    }

    /// Creates an empty, locked entry of a page; the caller ensures that there is no entry of either order.
    pub(super) fn insert_small(&mut self, page: u64) {
        self.node(page / P::PAGE_SIZE.pages_per_huge()).put(Order::Small, page, Entry::NEW);
    }

    /// Removes the entry at `page`, which the caller has locked.
    pub(super) fn remove(&mut self, order: Order, page: u64) -> Woken<P> {
        let index = page / P::PAGE_SIZE.pages_per_huge();
        let node = self.nodes.get_mut(&index).expect("a locked entry is in the tree");
        node.put(order, page, Entry::NONE);
        node.stamp = stamp(&mut self.next_stamp);
        self.shrink(index);
        self.wake_all(Key::Entry(page))
    }

    fn shrink(&mut self, index: u64) {
        if self.nodes.get(&index).is_some_and(Node::is_unused) {
            self.nodes.remove(&index);
        }
    }

    fn wake_one(&mut self, key: Key) -> Woken<P> {
        let first = self.waiters.iter().position(|waiter| waiter.key == key);
        Woken(first.map(|at| self.waiters.remove(at).event).into_iter().collect())
    }

    pub(super) fn wake_all(&mut self, key: Key) -> Woken<P> {
        let mut woken = Vec::new();
        while let Some(at) = self.waiters.iter().position(|waiter| waiter.key == key) {
            woken.push(self.waiters.remove(at).event);
        }
        Woken(woken)
    }
}

/// Returns a number that was never returned before.
fn stamp(next: &mut u64) -> u64 {
    *next += 1;
    *next
}
