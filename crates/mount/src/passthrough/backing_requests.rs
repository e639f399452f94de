//! [`BackingFileRequests`]: requests to the daemon for its files, and which range of the window each uses.
//!
//! Any worker sends them, with its next free slot. A worker that frees a range has one. Lock: `inner`, held for a
//! moment; that nothing waits, the usual case, is seen without it.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use transom_user::window::RANGE_LEN;
use transom_wire::{
    NodeId, Opcode,
    header::InHeader,
    ops::{
        removemapping::{RemovemappingIn, RemovemappingOne},
        setupmapping::{SETUPMAPPING_READ, SETUPMAPPING_WRITE, SetupmappingIn},
    },
};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::inodes::{Access, BackingFileRequest};

/// Set in the numbers of the mount's own requests. The kernel's counter does not reach this bit; bit 0 marks INTERRUPT.
const OWN: u64 = 1 << 63;

/// The queue of requests for files, shared by all workers.
pub(super) struct BackingFileRequests {
    inner: Mutex<Inner>,
    /// The number of requests that wait: stored under the lock, read without.
    waiting: AtomicUsize,
    /// The number of numbers that were given out.
    numbered: AtomicU64,
    sent: AtomicU64,
}

#[derive(Default)]
struct Inner {
    /// Ranges of the window without a mapping.
    free: Vec<u16>,
    requests: VecDeque<BackingFileRequest>,
    /// Ranges to unmap, and the inodes whose files are mapped there.
    unmaps: Vec<(u16, NodeId)>,
}

/// A request that a worker can send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MappingCommand {
    /// SETUPMAPPING: with the mapping comes the file's descriptor.
    Map { range: u16, request: BackingFileRequest },
    /// REMOVEMAPPING, once the descriptor has come.
    Unmap { range: u16, nodeid: NodeId },
}

impl MappingCommand {
    /// Returns the FUSE request, with the number `unique`.
    pub(super) fn message(self, unique: u64) -> Vec<u8> {
        let (opcode, nodeid, args) = match self {
            Self::Map { range, request } => {
                let write = if request.access == Access::Write { SETUPMAPPING_WRITE } else { 0 };
                let args = SetupmappingIn {
                    fh: u64::MAX.into(),
                    foffset: 0.into(),
                    len: RANGE_LEN.into(),
                    flags: (SETUPMAPPING_READ | write).into(),
                    moffset: (u64::from(range) * RANGE_LEN).into(),
                };
                (Opcode::Setupmapping, request.nodeid, args.as_bytes().to_vec())
            }
            Self::Unmap { range, nodeid } => {
                let one = RemovemappingOne { moffset: (u64::from(range) * RANGE_LEN).into(), len: RANGE_LEN.into() };
                let args = [RemovemappingIn { count: 1.into() }.as_bytes(), one.as_bytes()].concat();
                (Opcode::Removemapping, nodeid, args)
            }
        };
        let header = InHeader {
            len: ((size_of::<InHeader>() + args.len()) as u32).into(),
            opcode: (opcode as u32).into(),
            unique: unique.into(),
            nodeid: nodeid.into(),
            ..InHeader::new_zeroed()
        };
        [header.as_bytes(), &args].concat()
    }
}

impl BackingFileRequests {
    /// Creates an empty queue, for a window of `ranges` ranges.
    pub(super) fn new(ranges: u16) -> Self {
        let inner = Inner { free: (0..ranges).rev().collect(), ..Inner::default() };
        let (waiting, numbered) = (AtomicUsize::new(0), AtomicU64::new(0));
        Self { inner: Mutex::new(inner), waiting, numbered, sent: AtomicU64::new(0) }
    }

    /// Adds a request.
    pub(super) fn add(&self, request: BackingFileRequest) {
        self.change(|inner| inner.requests.push_back(request));
    }

    /// Has `range`, where the file of `nodeid` is mapped, unmapped.
    pub(super) fn unmap(&self, range: u16, nodeid: NodeId) {
        self.change(|inner| inner.unmaps.push((range, nodeid)));
    }

    /// Makes `range` free: nothing is mapped there.
    pub(super) fn free_range(&self, range: u16) {
        self.change(|inner| inner.free.push(range));
    }

    /// Returns whether [`Self::next`] may return a command.
    pub(super) fn has_some(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// Returns the next command that can be sent. A mapping takes a range until [`Self::free_range`].
    pub(super) fn next(&self) -> Option<MappingCommand> {
        self.change(|inner| {
            if let Some((range, nodeid)) = inner.unmaps.pop() {
                return Some(MappingCommand::Unmap { range, nodeid });
            }
            let range = *inner.free.last()?;
            let request = inner.requests.pop_front()?;
            inner.free.pop();
            self.sent.fetch_add(1, Ordering::Relaxed);
            Some(MappingCommand::Map { range, request })
        })
    }

    /// Returns the number of requests that were sent.
    pub(super) fn count(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns a number for a request of the mount's own.
    pub(super) fn next_unique(&self) -> u64 {
        OWN | self.numbered.fetch_add(1, Ordering::Relaxed) << 1
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let outcome = change(&mut inner);
        self.waiting.store(inner.requests.len() + inner.unmaps.len(), Ordering::Release);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_a_free_range_and_unmapping_waits_for_nothing() {
        let requests = BackingFileRequests::new(1);
        let request = |nodeid| BackingFileRequest { nodeid: NodeId(nodeid), access: Access::Read };
        requests.add(request(2));
        requests.add(request(3));
        assert_eq!(requests.next(), Some(MappingCommand::Map { range: 0, request: request(2) }));
        assert_eq!(requests.next(), None);
        requests.unmap(0, NodeId(2));
        assert_eq!(requests.next(), Some(MappingCommand::Unmap { range: 0, nodeid: NodeId(2) }));
        assert_eq!(requests.next(), None);
        assert!(requests.has_some());
        requests.free_range(0);
        assert_eq!(requests.next(), Some(MappingCommand::Map { range: 0, request: request(3) }));
        assert!(!requests.has_some());
        assert_eq!(requests.count(), 2);
    }

    #[test]
    fn numbers_are_neither_the_kernels_nor_those_of_interrupts() {
        let requests = BackingFileRequests::new(0);
        let (first, second) = (requests.next_unique(), requests.next_unique());
        assert!(first != second && first & OWN != 0 && (first | second) & 1 == 0);
    }
}
