//! [`KnownInodes`]: the inodes that the kernel knows, the names that it has cached in each directory, and when what it
//! has of an inode was fetched.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use parking_lot::Mutex;
use transom_versions::{Moment, Slot};
use transom_wire::NodeId;

/// Number of shards: enough that a worker seldom waits for the thread that scans.
const SHARD_COUNT: usize = 16;

/// Names in one directory.
pub(super) type NameSet = HashSet<Box<[u8]>>;

/// Inodes by nodeid. Each shard's lock is held for one lookup, or while the shard is scanned.
#[derive(Default)]
pub(super) struct KnownInodes([Mutex<HashMap<NodeId, KnownInode>>; SHARD_COUNT]);

struct KnownInode {
    slot: Slot,
    /// Everything that the kernel has cached of it was fetched at this moment or later.
    fetched: Moment,
    /// References that the kernel counts.
    nlookup: u64,
    /// Of a directory: the names that the kernel may use without asking.
    names: NameSet,
}

/// An inode of which the kernel has something that was changed.
pub(super) struct StaleInode {
    pub(super) nodeid: NodeId,
    /// When the oldest of it was fetched.
    pub(super) fetched: Moment,
    pub(super) names: NameSet,
}

impl KnownInode {
    fn new(slot: Slot, fetched: Moment, nlookup: u64) -> Self {
        Self { slot, fetched, nlookup, names: NameSet::new() }
    }
}

impl KnownInodes {
    /// Counts a reference to an inode that is named in a reply to a request of that moment.
    pub(super) fn add(&self, nodeid: NodeId, slot: Slot, moment: Moment) {
        let mut shard = self.shard(nodeid).lock();
        shard.entry(nodeid).or_insert_with(|| KnownInode::new(slot, moment, 0)).nlookup += 1;
    }

    /// Notes the root, which has no references and is never forgotten.
    pub(super) fn add_root(&self, slot: Slot, moment: Moment) {
        let mut shard = self.shard(NodeId::ROOT).lock();
        shard.entry(NodeId::ROOT).or_insert_with(|| KnownInode::new(slot, moment, u64::MAX));
    }

    /// Drops `count` references. Ignores an inode that is not known. Returns the number of names in an inode that is
    /// not known any more.
    pub(super) fn forget(&self, nodeid: NodeId, count: u64) -> usize {
        if nodeid == NodeId::ROOT {
            return 0;
        }
        if let Entry::Occupied(mut entry) = self.shard(nodeid).lock().entry(nodeid) {
            entry.get_mut().nlookup = entry.get().nlookup.saturating_sub(count);
            if entry.get().nlookup == 0 {
                return entry.remove().names.len();
            }
        }
        0
    }

    /// Returns whether an inode is known.
    pub(super) fn contains(&self, nodeid: NodeId) -> bool {
        self.shard(nodeid).lock().contains_key(&nodeid)
    }

    /// Notes names of a directory that the kernel has cached. Returns how many of them are new; 0 if the directory is
    /// not known. To be followed by [`Self::note_fetched`] for the directory.
    pub(super) fn note_names(&self, directory: NodeId, names: impl Iterator<Item = Box<[u8]>>) -> usize {
        let mut shard = self.shard(directory).lock();
        let Some(inode) = shard.get_mut(&directory) else { return 0 };
        let before = inode.names.len();
        inode.names.extend(names);
        inode.names.len() - before
    }

    /// Notes that the kernel has something of an inode that was fetched at `moment`. Returns whether all that it has of
    /// the inode is valid.
    pub(super) fn note_fetched(
        &self,
        nodeid: NodeId,
        moment: Moment,
        is_valid: impl FnOnce(Slot, Moment) -> bool,
    ) -> bool {
        let mut shard = self.shard(nodeid).lock();
        let Some(inode) = shard.get_mut(&nodeid) else { return true };
        inode.fetched = earlier(inode.fetched, moment);
        is_valid(inode.slot, inode.fetched)
    }

    /// Appends the inodes that are not valid to `stale`. They count as fetched at `now` and without names, since the
    /// caller has the kernel drop what it has of them. Returns whether `is_hot` was true of one.
    pub(super) fn take_stale(
        &self,
        now: Moment,
        is_valid: impl Fn(Slot, Moment) -> bool,
        is_hot: impl Fn(Slot) -> bool,
        stale: &mut Vec<StaleInode>,
    ) -> bool {
        let mut has_hot = false;
        for shard in &self.0 {
            for (&nodeid, inode) in shard.lock().iter_mut().filter(|(_, it)| !is_valid(it.slot, it.fetched)) {
                let fetched = std::mem::replace(&mut inode.fetched, now);
                stale.push(StaleInode { nodeid, fetched, names: std::mem::take(&mut inode.names) });
                has_hot |= is_hot(inode.slot);
            }
        }
        has_hot
    }

    fn shard(&self, nodeid: NodeId) -> &Mutex<HashMap<NodeId, KnownInode>> {
        &self.0[nodeid.0 as usize % SHARD_COUNT]
    }
}

fn earlier(one: Moment, other: Moment) -> Moment {
    std::cmp::min_by_key(one, other, |moment| (moment.epoch, moment.clock))
}

#[cfg(test)]
#[path = "known_test.rs"]
mod tests;
