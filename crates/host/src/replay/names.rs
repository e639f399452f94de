//! Which inode the guest last found under a name: what a removed or replaced name was, after it is gone.

use std::{
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hashbrown::{DefaultHashBuilder, HashMap};
use transom_wire::NodeId;

/// Number of names that are remembered, 24 bytes each. A removed name that is not remembered raises no event on the
/// file itself, only in its directory.
const NAMES_MAX: usize = 1 << 18;

/// Nodeids by directory and name. Names are kept as hashes: a wrong answer, once in 2^64, is one about the guest's own
/// files, and is corrected by its next lookup.
#[derive(Debug, Default)]
pub(crate) struct Names {
    found: Mutex<HashMap<(NodeId, u64), NodeId>>,
    hasher: DefaultHashBuilder,
}

impl Names {
    /// Remembers that the guest found `nodeid`.
    pub(crate) fn insert(&self, parent: NodeId, name: &[u8], nodeid: NodeId) {
        let key = self.key(parent, name);
        let mut found = self.lock();
        if found.len() >= NAMES_MAX && !found.contains_key(&key) {
            // Any one of them: the first in the table's own order.
            let victim = found.keys().next().copied();
            victim.and_then(|victim| found.remove(&victim));
        }
        found.insert(key, nodeid);
    }

    /// Returns what the guest found.
    pub(crate) fn get(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let key = self.key(parent, name);
        self.lock().get(&key).copied()
    }

    /// Forgets a name; returns what the guest had found.
    pub(crate) fn remove(&self, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let key = self.key(parent, name);
        self.lock().remove(&key)
    }

    /// Forgets all names.
    pub(crate) fn clear(&self) {
        *self.lock() = HashMap::default();
    }

    fn key(&self, parent: NodeId, name: &[u8]) -> (NodeId, u64) {
        (parent, self.hasher.hash_one(name))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(NodeId, u64), NodeId>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
