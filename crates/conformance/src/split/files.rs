//! The open files of two clients that are one: each is open in both where that is possible.

use std::collections::BTreeMap;

use crate::client::{Errno, Handle, Result};

/// A file that both clients have open.
#[derive(Clone, Copy)]
pub(super) struct Both {
    pub(super) acting: Handle,
    /// Nothing if the looking client has no name to open it by, may not, or must not: of a pipe or a mapped file.
    pub(super) looking: Option<Handle>,
    pub(super) may_read: bool,
    /// Whether the offset moves with what the acting client writes, so that both use that client's.
    pub(super) may_write: bool,
}

/// By the number that a case knows. A process inherits a copy.
#[derive(Clone, Default)]
pub(super) struct Files {
    open: BTreeMap<u64, Both>,
    next: u64,
}

impl Files {
    pub(super) fn add(&mut self, both: Both) -> Handle {
        self.next += 1;
        self.open.insert(self.next, both);
        Handle(self.next)
    }

    pub(super) fn get(&self, handle: Handle) -> Result<Both> {
        self.open.get(&handle.0).copied().ok_or(Errno::BADF)
    }

    pub(super) fn remove(&mut self, handle: Handle) -> Result<Both> {
        self.open.remove(&handle.0).ok_or(Errno::BADF)
    }

    /// From now on the acting client alone uses the file; returns the other's handle.
    pub(super) fn keep_acting(&mut self, handle: Handle) -> Option<Handle> {
        self.open.get_mut(&handle.0).and_then(|both| both.looking.take())
    }
}
