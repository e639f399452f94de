//! Files that the guest may change through its window, without a request: those that it has open for writing while
//! ranges of them are mapped. They are hot for the coherence group from the later of both until the last such open file
//! is released.
//!
//! A guest cannot store through a mapping without an open file, and Linux releases the file after the last mapping of a
//! program is gone. Lock: [`HotFiles`]'s own, within which the window's is taken.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::OFlags;
use transom_versions::Slot;
use transom_wire::{Handle, NodeId};

use super::Passthrough;
use crate::group::Group;

/// The files that are open for writing. Empty without a window or a group.
#[derive(Debug, Default)]
pub(super) struct HotFiles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    open: HashMap<Handle, NodeId>,
    inodes: HashMap<NodeId, Written>,
}

/// An inode that is open for writing.
#[derive(Debug)]
struct Written {
    open_count: usize,
    slot: Slot,
    is_hot: bool,
}

impl Written {
    fn heat(&mut self, group: &Group) {
        if !self.is_hot {
            self.is_hot = true;
            group.heat(self.slot);
        }
    }
}

impl HotFiles {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Passthrough {
    /// Notes that a file was opened. Call it before the reply.
    pub(super) fn note_open(&self, fh: Handle, nodeid: NodeId, guest: OFlags) {
        let (Some(group), Some(dax)) = (&self.group, &self.dax) else { return };
        if guest & OFlags::RWMODE == OFlags::RDONLY {
            return;
        }
        let Some(slot) = self.slot(group, nodeid) else { return };
        let mut state = self.hot_files.lock();
        state.open.insert(fh, nodeid);
        let written = state.inodes.entry(nodeid).or_insert(Written { open_count: 0, slot, is_hot: false });
        written.open_count += 1;
        if dax.has_node(nodeid) {
            written.heat(group);
        }
    }

    /// Notes that a range of a file was mapped. Call it before the reply.
    pub(super) fn note_mapped(&self, nodeid: NodeId) {
        let Some(group) = &self.group else { return };
        if let Some(written) = self.hot_files.lock().inodes.get_mut(&nodeid) {
            written.heat(group);
        }
    }

    /// Notes that a file was released. Call it before the reply.
    pub(super) fn note_released(&self, fh: Handle) {
        let Some(group) = &self.group else { return };
        let mut state = self.hot_files.lock();
        let Some(nodeid) = state.open.remove(&fh) else { return };
        let Some(written) = state.inodes.get_mut(&nodeid) else { return };
        written.open_count -= 1;
        if written.open_count == 0
            && let Some(written) = state.inodes.remove(&nodeid)
            && written.is_hot
        {
            group.cool(written.slot);
        }
    }

    /// Notes that everything was released.
    pub(super) fn note_all_released(&self) {
        let Some(group) = &self.group else { return };
        let state = std::mem::take(&mut *self.hot_files.lock());
        state.inodes.values().filter(|written| written.is_hot).for_each(|written| group.cool(written.slot));
    }
}
