//! The memory of all chunks of a volume: a limit, and a clock that selects the chunk to evict.
//!
//! A ring lists the chunks; its lock is held for one entry at a time. A chunk that was dropped elsewhere stays listed
//! until the hand reaches it. Each new chunk advances the hand by two, so the ring is at most twice as long as it needs
//! to be.

use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::{
    Platform,
    sync::{Mutex, SleepLock, rank},
};

/// An inode, as the owner of chunks.
pub(crate) trait Owner {
    /// Returns whether chunk `index` exists and is still the one with this `id`.
    fn has_chunk(&self, index: u64, id: u64) -> bool;

    /// Frees a chunk.
    ///
    /// # Errors
    /// The chunk was not freed: true if it was used since the last call or is busy, false if it no longer exists.
    fn evict_chunk(&self, index: u64, id: u64) -> Result<(), bool>;
}

/// Limits the cached contents of files; a `T` is an inode.
pub(crate) struct Memory<P: Platform, T> {
    used_bytes: AtomicUsize,
    max_bytes: usize,
    ids: AtomicU64,
    /// Inodes with dirty pages, oldest first.
    dirty: Mutex<P, { rank::LEAF }, VecDeque<Dirty<T>>>,
    dirty_bytes: AtomicUsize,
    /// Held across requests by the thread that writes back what it took off the list, because others find those pages
    /// neither listed nor written.
    pub(crate) write_backs: SleepLock<P, { rank::WRITE_BACKS }>,
    ring: Mutex<P, { rank::LEAF }, VecDeque<Listed<T>>>,
}

struct Dirty<T> {
    inode: Weak<T>,
    since_ns: u64,
}

struct Listed<T> {
    inode: Weak<T>,
    index: u64,
    id: u64,
}

impl<P: Platform, T: Owner> Memory<P, T> {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            used_bytes: AtomicUsize::new(0),
            max_bytes,
            ids: AtomicU64::new(0),
            dirty: Mutex::default(),
            dirty_bytes: AtomicUsize::new(0),
            write_backs: SleepLock::default(),
            ring: Mutex::default(),
        }
    }

    /// Returns the number of bytes in use.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Reserves `len_bytes`, evicting chunks if needed. Returns false if there is not enough memory.
    pub(crate) fn reserve(&self, len_bytes: usize) -> bool {
        loop {
            let before = self.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
            if before.saturating_add(len_bytes) <= self.max_bytes {
                return true;
            }
            self.release(len_bytes);
            if !self.evict() {
                return false;
            }
        }
    }

    /// Releases reserved memory.
    pub(crate) fn release(&self, len_bytes: usize) {
        self.used_bytes.fetch_sub(len_bytes, Ordering::Relaxed);
    }

    /// Lists an inode whose first page became dirty at `since_ns`.
    pub(crate) fn list_dirty(&self, inode: &Arc<T>, since_ns: u64) {
        self.dirty.lock().push_back(Dirty { inode: Arc::downgrade(inode), since_ns });
    }

    /// Removes a clean inode from the list.
    pub(crate) fn unlist_dirty(&self, inode: &T) {
        self.dirty.lock().retain(|dirty| !core::ptr::eq(dirty.inode.as_ptr(), inode));
    }

    /// Removes the inode that has been dirty longest and returns it with the time it became dirty, if that was at
    /// `before_ns` or earlier.
    pub(crate) fn oldest_dirty(&self, before_ns: u64) -> Option<(Arc<T>, u64)> {
        loop {
            let mut list = self.dirty.lock();
            list.front().filter(|dirty| dirty.since_ns <= before_ns)?;
            let oldest = list.pop_front()?;
            drop(list);
            if let Some(inode) = oldest.inode.upgrade() {
                return Some((inode, oldest.since_ns));
            }
        }
    }

    /// Returns the number of bytes that wait to be written.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Updates the count of dirty bytes.
    pub(crate) fn count_dirty(&self, before: usize, after: usize) {
        if after >= before {
            self.dirty_bytes.fetch_add(after - before, Ordering::Relaxed);
        } else {
            self.dirty_bytes.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    /// Returns an id that no other chunk has had.
    pub(crate) fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Lists a chunk.
    pub(crate) fn list(&self, inode: &Arc<T>, index: u64, id: u64) {
        for _ in 0..2 {
            self.sweep();
        }
        self.ring.lock().push_back(Listed { inode: Arc::downgrade(inode), index, id });
    }

    /// Removes the next entry of the ring if its chunk no longer exists.
    fn sweep(&self) {
        let Some(listed) = self.pop() else { return };
        if listed.inode.upgrade().is_some_and(|inode| inode.has_chunk(listed.index, listed.id)) {
            self.ring.lock().push_back(listed);
        }
    }

    /// Frees one chunk. Returns false if every chunk was used or busy in two rounds.
    fn evict(&self) -> bool {
        let rounds = 2 * self.ring.lock().len();
        for _ in 0..rounds {
            let Some(listed) = self.pop() else { return false };
            let Some(inode) = listed.inode.upgrade() else { continue };
            match inode.evict_chunk(listed.index, listed.id) {
                Ok(()) => return true,
                Err(true) => self.ring.lock().push_back(listed),
                Err(false) => {}
            }
        }
        false
    }

    fn pop(&self) -> Option<Listed<T>> {
        self.ring.lock().pop_front()
    }
}
