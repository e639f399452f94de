//! One part of the known inodes, under one lock: entries, an index by identity, and the clocks that choose which
//! descriptor to close.
//!
//! A shard makes no system call and drops no descriptor: descriptors to close are returned to the caller.

use std::{hash::BuildHasher, sync::Arc};

use hashbrown::{DefaultHashBuilder, HashTable};
use rustix::fs::FileType;

use super::{
    identity::{Hold, Identity},
    path_fd::Fd,
};
use crate::{passthrough::slab::Slab, sysfd::FileHandle};

/// The record of a known inode.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) identity: Identity,
    pub(super) hold: Hold,
    /// Lookups that the guest has not forgotten yet.
    pub(super) lookups: u64,
    /// `O_PATH`, while it is kept.
    pub(super) fd: Option<Fd>,
    /// Number of inodes whose [`Path`](super::identity::Path) begins here.
    pub(super) children: u32,
    /// The entry's index in its clock; meaningless unless `fd` is kept and not pinned.
    place: u32,
    pub(super) file_type: FileType,
    /// Used since the clock hand last passed.
    is_fresh: bool,
    /// The descriptor is the last reference to the inode.
    pub(super) is_pinned: bool,
}

// A million inodes have to fit into 200 MB, including the index and spare capacity.
const _: () = assert!(size_of::<Entry>() <= 112);

/// The class of a descriptor. Directories are used for each name in them and are closed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Directory,
    Other,
}

/// A descriptor that was chosen to be closed.
#[derive(Debug)]
pub(super) enum Evicted {
    /// It has left its entry.
    Closed(Fd),
    /// It is all that leads to the inode with this key, whose handle has to be taken first: see
    /// [`Shard::close_with_handle`].
    Needed(u64, Fd),
}

/// Descriptors in the order in which the clock inspects them.
#[derive(Debug, Default)]
struct Clock {
    indices: Vec<u32>,
    hand: usize,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) entries: Slab<Entry>,
    index: HashTable<u32>,
    clocks: [Clock; 2],
    hasher: DefaultHashBuilder,
}

impl Entry {
    /// Creates an entry with one lookup and no descriptor.
    pub(super) fn new(identity: Identity, file_type: FileType, hold: Hold) -> Self {
        Self {
            identity,
            hold,
            lookups: 1,
            fd: None,
            children: 0,
            place: 0,
            file_type,
            is_fresh: false,
            is_pinned: false,
        }
    }

    pub(super) fn class(&self) -> Class {
        Class::of(self.file_type)
    }

    fn is_unused(&self) -> bool {
        self.lookups == 0 && self.children == 0
    }
}

impl Class {
    pub(super) fn of(file_type: FileType) -> Self {
        if file_type == FileType::Directory { Self::Directory } else { Self::Other }
    }
}

impl Shard {
    pub(super) fn new(shard: u32, shards: u32, hasher: DefaultHashBuilder) -> Self {
        let clocks = [Clock::default(), Clock::default()];
        Self { entries: Slab::new(shard, shards), index: HashTable::new(), clocks, hasher }
    }

    /// Returns the entry that is certainly the inode with this identity. Either its descriptor is open, so that its
    /// number cannot have been reused, or its handle is `handle`. Without handles (`None`), the identity alone
    /// decides.
    pub(super) fn find(&self, identity: &Identity, handle: Option<Option<&FileHandle>>) -> Option<u64> {
        let is_it = |&index: &u32| {
            self.entries.value_at(index).is_some_and(|entry| {
                entry.identity == *identity
                    && (entry.fd.is_some() || handle.is_some_and(|handle| handle == entry.hold.handle()))
            })
        };
        let index = self.index.find(hash(&self.hasher, identity), is_it)?;
        self.entries.key_at(*index)
    }

    /// Returns an entry with this identity, which may be the same inode or an earlier one.
    pub(super) fn find_any(&self, identity: &Identity) -> Option<u64> {
        let is_it = |&index: &u32| self.entries.value_at(index).is_some_and(|entry| entry.identity == *identity);
        self.entries.key_at(*self.index.find(hash(&self.hasher, identity), is_it)?)
    }

    /// Returns the entry with this identity and this handle.
    pub(super) fn find_by_handle(&self, identity: &Identity, handle: &FileHandle) -> Option<u64> {
        let is_it = |&index: &u32| {
            let entry = self.entries.value_at(index);
            entry.is_some_and(|entry| entry.identity == *identity && entry.hold.handle() == Some(handle))
        };
        self.entries.key_at(*self.index.find(hash(&self.hasher, identity), is_it)?)
    }

    /// Inserts an entry and returns its key, or returns the entry if no key is left.
    pub(super) fn insert(&mut self, entry: Entry) -> Result<u64, Entry> {
        let identity = entry.identity;
        let key = self.entries.insert(entry)?;
        let index = self.entries.index(key);
        let Self { entries, index: table, hasher, .. } = self;
        let rehash = |&index: &u32| entries.value_at(index).map_or(0, |entry| hash(hasher, &entry.identity));
        table.insert_unique(hash(hasher, &identity), index, rehash);
        Ok(key)
    }

    /// Removes the entry if neither the guest nor another inode needs it.
    pub(super) fn remove_unused(&mut self, key: u64) -> Option<Entry> {
        if !self.entries.get(key)?.is_unused() {
            return None;
        }
        self.leave_clock(key);
        self.unindex(key);
        self.entries.remove(key)
    }

    /// Removes all entries.
    pub(super) fn drain(&mut self) -> Vec<Entry> {
        self.index.clear();
        self.clocks = [Clock::default(), Clock::default()];
        self.entries.drain()
    }

    /// Removes the entry from the index, so that no lookup finds it.
    pub(super) fn unindex(&mut self, key: u64) {
        let index = self.entries.index(key);
        let Some(entry) = self.entries.get(key) else { return };
        if let Ok(found) = self.index.find_entry(hash(&self.hasher, &entry.identity), |&other| other == index) {
            found.remove();
        }
    }

    /// Keeps `fd` with the entry, closable or pinned. Fails with the descriptor that the entry already has, or with
    /// `None` if the entry is gone.
    pub(super) fn keep(&mut self, key: u64, fd: &Fd, is_pinned: bool) -> Result<(), Option<Fd>> {
        let index = self.entries.index(key);
        let Some(entry) = self.entries.get_mut(key) else { return Err(None) };
        if let Some(kept) = &entry.fd {
            return Err(Some(Arc::clone(kept)));
        }
        entry.fd = Some(Arc::clone(fd));
        entry.is_pinned = is_pinned;
        if !is_pinned {
            self.enter_clock(index);
        }
        Ok(())
    }

    /// Returns the entry's descriptor, if it is kept, and marks it as used.
    pub(super) fn kept(&mut self, key: u64) -> Option<Fd> {
        let entry = self.entries.get_mut(key)?;
        entry.is_fresh = true;
        entry.fd.clone()
    }

    /// Protects the entry's kept descriptor from being closed.
    pub(super) fn pin(&mut self, key: u64) {
        self.leave_clock(key);
        if let Some(entry) = self.entries.get_mut(key) {
            entry.is_pinned = true;
        }
    }

    /// Undoes [`Shard::pin`]; returns false if the entry was not pinned.
    pub(super) fn unpin(&mut self, key: u64) -> bool {
        let index = self.entries.index(key);
        match self.entries.get_mut(key) {
            Some(entry) if entry.is_pinned => entry.is_pinned = false,
            _ => return false,
        }
        self.enter_clock(index);
        true
    }

    /// Removes the approximately least recently used descriptor of `class`, unless it is needed.
    pub(super) fn evict(&mut self, class: Class) -> Option<Evicted> {
        let clock = &mut self.clocks[class as usize];
        // Go around twice: the first round may find every entry fresh.
        for _ in 0..2 * clock.indices.len() {
            clock.hand = if clock.hand < clock.indices.len() { clock.hand } else { 0 };
            let index = clock.indices[clock.hand];
            let entry = self.entries.value_at_mut(index)?;
            if std::mem::take(&mut entry.is_fresh) {
                clock.hand += 1;
                continue;
            }
            if matches!(entry.hold, Hold::Descriptor) {
                clock.hand += 1;
                let fd = entry.fd.clone()?;
                return Some(Evicted::Needed(self.entries.key_at(index)?, fd));
            }
            let fd = entry.fd.take();
            self.take_place(class, clock_place(index, &self.entries)?);
            return fd.map(Evicted::Closed);
        }
        None
    }

    /// Has the entry's inode found by `handle`, which was taken from the descriptor `fd`, if that is kept.
    pub(super) fn set_handle(&mut self, key: u64, fd: &Fd, handle: FileHandle) {
        if let Some(entry) = self.entries.get_mut(key)
            && matches!(entry.hold, Hold::Descriptor)
            && entry.fd.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, fd))
        {
            entry.hold = Hold::Handle(handle);
        }
    }

    /// Does that, and removes the descriptor unless it was pinned meanwhile.
    pub(super) fn close_with_handle(&mut self, key: u64, fd: &Fd, handle: FileHandle) -> Option<Fd> {
        self.set_handle(key, fd, handle);
        let entry = self.entries.get(key)?;
        let is_it = entry.fd.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, fd));
        if !is_it || entry.is_pinned || !matches!(entry.hold, Hold::Handle(_)) {
            return None;
        }
        self.leave_clock(key);
        self.entries.get_mut(key)?.fd.take()
    }

    /// Removes all descriptors of `class` that were not used since the last call, and returns them with those that are
    /// needed, which stay.
    pub(super) fn take_unused(&mut self, class: Class) -> Vec<Evicted> {
        let mut unused = Vec::new();
        let mut place = 0;
        while let Some(&index) = self.clocks[class as usize].indices.get(place) {
            let Some(entry) = self.entries.value_at_mut(index) else { break };
            if std::mem::take(&mut entry.is_fresh) {
                place += 1;
            } else if matches!(entry.hold, Hold::Descriptor) {
                let fd = entry.fd.clone();
                unused.extend(self.entries.key_at(index).zip(fd).map(|(key, fd)| Evicted::Needed(key, fd)));
                place += 1;
            } else {
                unused.extend(entry.fd.take().map(Evicted::Closed));
                self.take_place(class, place as u32);
            }
        }
        unused
    }

    fn enter_clock(&mut self, index: u32) {
        let Some(entry) = self.entries.value_at_mut(index) else { return };
        let clock = &mut self.clocks[entry.class() as usize];
        entry.place = clock.indices.len() as u32;
        clock.indices.push(index);
    }

    fn leave_clock(&mut self, key: u64) {
        let Some(entry) = self.entries.get(key) else { return };
        if entry.fd.is_some() && !entry.is_pinned {
            self.take_place(entry.class(), entry.place);
        }
    }

    /// Removes the entry at `place` from its clock; the last one moves there.
    fn take_place(&mut self, class: Class, place: u32) {
        let indices = &mut self.clocks[class as usize].indices;
        indices.swap_remove(place as usize);
        if let Some(&moved) = indices.get(place as usize)
            && let Some(entry) = self.entries.value_at_mut(moved)
        {
            entry.place = place;
        }
        // A burst leaves a long list.
        if indices.capacity() > 1024 && indices.len() < indices.capacity() / 4 {
            indices.shrink_to(indices.len() * 2);
        }
    }
}

fn clock_place(index: u32, entries: &Slab<Entry>) -> Option<u32> {
    entries.value_at(index).map(|entry| entry.place)
}

/// Hashes all but the birth time, so that a reused number is found in the same slot as its predecessor.
pub(super) fn hash(hasher: &DefaultHashBuilder, identity: &Identity) -> u64 {
    hasher.hash_one((identity.ino, identity.fs))
}
