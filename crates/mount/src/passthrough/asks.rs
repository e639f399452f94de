//! Questions to the daemon: which wait, and which range of the window each takes.
//!
//! Any thread of the mount sends them, with its next free slot: whoever gives a range back has one. Lock: `inner`, held for a
//! moment; that nothing waits, which is nearly always so, is seen without it.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use transom_wire::NodeId;

use super::inodes::Ask;

/// Numbers of our own requests have this bit, which the kernel's counter does not reach; the lowest is INTERRUPT's.
const OWN: u64 = 1 << 63;

pub(super) struct Asks {
    inner: Mutex<Inner>,
    /// Of what waits: stored under the lock, read without.
    waiting: AtomicUsize,
    /// Requests that were numbered.
    numbered: AtomicU64,
    sent: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// Ranges where nothing is mapped.
    free: Vec<u16>,
    asks: VecDeque<Ask>,
    /// What is to be unmapped, of which inode.
    unmaps: Vec<(u16, NodeId)>,
}

/// A request that a thread can send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Job {
    Map { range: u16, ask: Ask },
    Unmap { range: u16, nodeid: NodeId },
}

impl Asks {
    /// For a window of so many ranges.
    pub(super) fn new(ranges: u16) -> Self {
        let inner = Inner { free: (0..ranges).rev().collect(), ..Inner::default() };
        let (waiting, numbered) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { inner: Mutex::new(inner), waiting, numbered, sent: AtomicU64::new(0) }
    }

    pub(super) fn ask(&self, ask: Ask) {
        self.change(|inner| inner.asks.push_back(ask));
    }

    /// The file at `range` is no longer needed there.
    pub(super) fn unmap(&self, range: u16, nodeid: NodeId) {
        self.change(|inner| inner.unmaps.push((range, nodeid)));
    }

    /// Nothing is mapped at `range`.
    pub(super) fn give(&self, range: u16) {
        self.change(|inner| inner.free.push(range));
    }

    /// Whether [`Self::next`] is worth a look.
    pub(super) fn has_some(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// What can be sent; a question takes a range until [`Self::give`].
    pub(super) fn next(&self) -> Option<Job> {
        self.change(|inner| {
            if let Some((range, nodeid)) = inner.unmaps.pop() {
                return Some(Job::Unmap { range, nodeid });
            }
            let range = *inner.free.last()?;
            let ask = inner.asks.pop_front()?;
            inner.free.pop();
            self.sent.fetch_add(1, Ordering::Relaxed);
            Some(Job::Map { range, ask })
        })
    }

    /// Questions that were sent.
    pub(super) fn count(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// A number for a request of our own.
    pub(super) fn number(&self) -> u64 {
        OWN | self.numbered.fetch_add(1, Ordering::Relaxed) << 1
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let outcome = change(&mut inner);
        self.waiting.store(inner.asks.len() + inner.unmaps.len(), Ordering::Release);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::{super::inodes::Access, *};

    #[test]
    fn a_question_without_a_range_waits_for_one_and_unmapping_waits_for_nothing() {
        let asks = Asks::new(1);
        let ask = |nodeid| Ask { nodeid: NodeId(nodeid), access: Access::Read };
        asks.ask(ask(2));
        asks.ask(ask(3));
        assert_eq!(asks.next(), Some(Job::Map { range: 0, ask: ask(2) }));
        assert_eq!(asks.next(), None);
        asks.unmap(0, NodeId(2));
        assert_eq!(asks.next(), Some(Job::Unmap { range: 0, nodeid: NodeId(2) }));
        assert_eq!(asks.next(), None);
        assert!(asks.has_some());
        asks.give(0);
        assert_eq!(asks.next(), Some(Job::Map { range: 0, ask: ask(3) }));
        assert!(!asks.has_some());
        assert_eq!(asks.count(), 2);
    }

    #[test]
    fn numbers_are_not_the_kernels_nor_those_of_interrupts() {
        let asks = Asks::new(0);
        let (first, second) = (asks.number(), asks.number());
        assert!(first != second && first & OWN != 0 && (first | second) & 1 == 0);
    }
}
