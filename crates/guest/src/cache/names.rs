//! Cached names: each leads to an inode, or is known to be absent.
//!
//! One table per volume, divided by hash into shards. Each shard has its own lock and a limit; a clock's hand passes
//! over names that were used since it last came. A name is valid as long as its [`Validity`] says, which the
//! directory's judge decides, and only while its directory is in the epoch in which it was fetched. References to
//! inodes are dropped outside the locks because the last one sends a message.

use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::hash::{BuildHasher, Hash, Hasher};

use hashbrown::{DefaultHashBuilder, HashTable};
use transom_wire::{Name, NodeId};

use super::{Judge, Validity};
use crate::{
    Platform,
    sync::{Mutex, rank},
};

/// Number of locks: few threads contend for one, and an empty table stays small.
const SHARDS: usize = 16;

/// The names of a volume; a `T` is an inode.
pub(crate) struct Names<P: Platform, T> {
    shards: [Mutex<P, { rank::LEAF }, Shard<T>>; SHARDS],
    hasher: DefaultHashBuilder,
}

/// Identifies a name, and the epoch of its directory in which it must have been fetched.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) parent: NodeId,
    /// The directory's epoch.
    pub(crate) epoch: u64,
    pub(crate) name: Name<'a>,
}

/// What a name leads to.
pub(crate) enum CachedName<T> {
    Inode(Arc<T>),
    Absent,
}

struct Shard<T> {
    /// Indices into `slots`.
    index: HashTable<usize>,
    slots: Vec<Slot<T>>,
    hand: usize,
    slots_max: usize,
}

struct Slot<T> {
    hash: u64,
    parent: NodeId,
    epoch: u64,
    name: Box<[u8]>,
    target: Option<Arc<T>>,
    validity: Validity,
    /// Whether the name was used since the hand last passed.
    is_used: bool,
}

impl<P: Platform, T> Names<P, T> {
    pub(crate) fn new(names_max: usize) -> Self {
        let shard = || Shard { index: HashTable::new(), slots: Vec::new(), hand: 0, slots_max: names_max / SHARDS };
        Self { shards: core::array::from_fn(|_| Mutex::new(shard())), hasher: DefaultHashBuilder::default() }
    }

    /// Returns what the name leads to, if that is known and still valid by the directory's `judge`.
    pub(crate) fn get(&self, key: Key<'_>, judge: &impl Judge) -> Option<CachedName<T>> {
        let hash = self.hash(key);
        let mut shard = self.shard(hash).lock();
        let place = shard.find(hash, key)?;
        let slot = &mut shard.slots[place];
        if slot.epoch != key.epoch || !slot.validity.is_valid(judge) {
            return None;
        }
        slot.is_used = true;
        Some(slot.target.as_ref().map_or(CachedName::Absent, |inode| CachedName::Inode(Arc::clone(inode))))
    }

    /// Caches what a name leads to, if `is_current` still returns true once the shard is locked.
    pub(crate) fn put(
        &self,
        key: Key<'_>,
        target: Option<Arc<T>>,
        validity: Validity,
        is_current: impl FnOnce() -> bool,
    ) {
        if validity == Validity::NEVER {
            return self.remove(key);
        }
        let hash = self.hash(key);
        let slot = Slot {
            hash,
            parent: key.parent,
            epoch: key.epoch,
            name: key.name.as_bytes().into(),
            target,
            validity,
            is_used: false,
        };
        let mut shard = self.shard(hash).lock();
        let displaced = if is_current() { shard.put(key, slot) } else { Some(slot) };
        drop(shard);
        drop(displaced);
    }

    /// Removes a name.
    pub(crate) fn remove(&self, key: Key<'_>) {
        let hash = self.hash(key);
        let mut shard = self.shard(hash).lock();
        let removed = shard.find(hash, key).map(|place| shard.take(place));
        drop(shard);
        drop(removed);
    }

    /// Removes all names.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.index.clear();
            let slots = core::mem::take(&mut shard.slots);
            drop(shard);
            drop(slots);
        }
    }

    fn hash(&self, key: Key<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        key.parent.hash(&mut hasher);
        hasher.write(key.name.as_bytes());
        hasher.finish()
    }

    fn shard(&self, hash: u64) -> &Mutex<P, { rank::LEAF }, Shard<T>> {
        // The table uses the lowest and the highest bits.
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

impl<T> Shard<T> {
    fn find(&self, hash: u64, key: Key<'_>) -> Option<usize> {
        let is_key = |&place: &usize| {
            let slot = &self.slots[place];
            slot.parent == key.parent && *slot.name == *key.name.as_bytes()
        };
        self.index.find(hash, is_key).copied()
    }

    /// Stores a slot. Returns the slot that was replaced or evicted, or `slot` itself if the shard has no room.
    fn put(&mut self, key: Key<'_>, slot: Slot<T>) -> Option<Slot<T>> {
        let hash = slot.hash;
        if let Some(place) = self.find(hash, key) {
            return Some(core::mem::replace(&mut self.slots[place], slot));
        }
        if self.slots_max == 0 {
            return Some(slot);
        }
        let displaced = (self.slots.len() >= self.slots_max).then(|| self.evict());
        self.slots.push(slot);
        let slots = &self.slots;
        self.index.insert_unique(hash, slots.len() - 1, |&place| slots[place].hash);
        displaced
    }

    /// Removes the next slot that was not used since the hand last passed.
    fn evict(&mut self) -> Slot<T> {
        loop {
            self.hand = if self.hand + 1 < self.slots.len() { self.hand + 1 } else { 0 };
            let slot = &mut self.slots[self.hand];
            if !core::mem::take(&mut slot.is_used) {
                return self.take(self.hand);
            }
        }
    }

    /// Removes a slot; the last one moves to its place.
    fn take(&mut self, place: usize) -> Slot<T> {
        self.unlist(place);
        let last = self.slots.len() - 1;
        if place != last {
            let hash = self.slots[last].hash;
            if let Some(listed) = self.index.find_mut(hash, |&listed| listed == last) {
                *listed = place;
            }
        }
        self.slots.swap_remove(place)
    }

    fn unlist(&mut self, place: usize) {
        if let Ok(entry) = self.index.find_entry(self.slots[place].hash, |&listed| listed == place) {
            entry.remove();
        }
    }
}
