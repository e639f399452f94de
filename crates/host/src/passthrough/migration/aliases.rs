//! Inodes whose nodeid the guest has from another daemon.
//!
//! A request that names one is translated to our own nodeid, and a reply back. Without such inodes, that costs a load.
//! Lock: its own, held for one lookup or change.

use std::sync::{
    PoisonError, RwLock, RwLockWriteGuard,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use hashbrown::HashMap;
use transom_wire::NodeId;

/// Nodeids that differ between the guest and us.
#[derive(Debug, Default)]
pub(in crate::passthrough) struct Aliases {
    is_used: AtomicBool,
    maps: RwLock<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    /// Ours by the guest's.
    own: HashMap<u64, u64>,
    /// The guest's by ours: one, if it has several for one inode.
    guests: HashMap<u64, u64>,
}

impl Aliases {
    /// Returns our nodeid of what the guest calls `nodeid`.
    pub(in crate::passthrough) fn own(&self, nodeid: NodeId) -> NodeId {
        if !self.is_used.load(Acquire) {
            return nodeid;
        }
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps.own.get(&nodeid.0).map_or(nodeid, |&own| NodeId(own))
    }

    /// Returns what the guest calls our `nodeid`.
    pub(in crate::passthrough) fn guests(&self, nodeid: NodeId) -> NodeId {
        if !self.is_used.load(Acquire) {
            return nodeid;
        }
        let maps = self.maps.read().unwrap_or_else(PoisonError::into_inner);
        maps.guests.get(&nodeid.0).map_or(nodeid, |&guests| NodeId(guests))
    }

    /// Notes that the guest calls our `own` inode `guests`.
    pub(super) fn insert(&self, guests: NodeId, own: NodeId) {
        let mut maps = self.write();
        maps.own.insert(guests.0, own.0);
        maps.guests.insert(own.0, guests.0);
        self.is_used.store(true, Release);
    }

    /// Drops the name of our `own` inode, which the guest has forgotten.
    pub(in crate::passthrough) fn remove(&self, own: NodeId) {
        if !self.is_used.load(Acquire) {
            return;
        }
        let mut maps = self.write();
        if let Some(guests) = maps.guests.remove(&own.0) {
            maps.own.remove(&guests);
        }
        self.is_used.store(!maps.own.is_empty(), Release);
    }

    /// Drops all.
    pub(in crate::passthrough) fn clear(&self) {
        *self.write() = Maps::default();
        self.is_used.store(false, Release);
    }

    fn write(&self) -> RwLockWriteGuard<'_, Maps> {
        self.maps.write().unwrap_or_else(PoisonError::into_inner)
    }
}
