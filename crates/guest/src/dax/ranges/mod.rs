//! Which parts of one file are in the window, and how a part gets there.
//!
//! A range that is being mapped, upgraded or unmapped is busy: other threads do without it, or wait. Only settled
//! ranges are pinned, under the lock; a range is removed, under the lock, if it is settled and not pinned. Within a
//! blocked part no range is pinned or becomes busy, so the thread that changes the file there has exclusive access.
//!
//! [`pinning`] sends the requests, [`block`] excludes others while the file is changed, [`refused`] records what the
//! server has refused.

mod block;
#[cfg(all(test, feature = "loom"))]
mod loom_test;
mod pinning;
mod refused;
#[cfg(all(test, not(feature = "loom")))]
mod refused_test;

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::{mem, ops::Range as Span};

use hashbrown::HashMap;

pub(crate) use block::Blocked;

use super::{Access, PageTables, Pin, Window, mapped::Mapped};
use crate::{
    Errno, Platform,
    sync::{Mutex, rank},
};
use refused::Refused;

/// The ranges of one inode.
pub struct Ranges<P: Platform> {
    pub(super) window: Arc<Window<P>>,
    map: Mutex<P, { rank::RANGES }, Map>,
    /// What the mappings of the file share, once there is one: it records stores that were not flushed. Its lock is
    /// taken before that of `map`.
    mapped: Mutex<P, { rank::MAPPED }, Option<Arc<Mapped<P>>>>,
}

#[derive(Default)]
struct Map {
    /// By `offset / RANGE_LEN` in the file.
    by_index: HashMap<u64, Range>,
    /// Parts of the file that must not be pinned, because the file is being changed there.
    blocked: Option<Span<u64>>,
    refused: Refused,
    tables: Vec<Weak<dyn PageTables>>,
}

impl Map {
    fn is_blocked(&self, index: u64) -> bool {
        self.blocked.as_ref().is_some_and(|blocked| blocked.contains(&index))
    }
}

#[derive(Clone, Copy)]
struct Range {
    slot: u32,
    is_writable: bool,
    is_busy: bool,
}

/// The state of a range.
enum PinAttempt<'r, P: Platform> {
    Pinned(Pin<'r, P>),
    /// Mapped for reading only.
    ReadOnly,
    Absent,
    NotNow,
    Never(Errno),
}

/// Why there is no pin.
pub(crate) enum Denied {
    /// It may be available later.
    NotNow,
    /// The server does not map this file.
    Never(Errno),
}

impl<P: Platform> Ranges<P> {
    pub(crate) fn new(window: Arc<Window<P>>) -> Self {
        Self { window, map: Mutex::default(), mapped: Mutex::default() }
    }

    /// Returns the window that contains the ranges.
    pub fn window(&self) -> &Arc<Window<P>> {
        &self.window
    }

    /// Returns the number of ranges.
    pub fn len(&self) -> usize {
        self.map.lock().by_index.len()
    }

    /// Returns whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the state that all mappings of the file share. It lives as long as the inode.
    pub fn mapped(&self) -> Arc<Mapped<P>> {
        let mut known = self.mapped.lock();
        let mapped = known.get_or_insert_with(|| {
            let mapped = Arc::<Mapped<P>>::default();
            let tables: Weak<dyn PageTables> = Arc::downgrade(&mapped) as Weak<dyn PageTables>;
            self.register(tables);
            mapped
        });
        Arc::clone(mapped)
    }

    /// Registers `tables`, which are asked before a range is removed, for as long as they live.
    pub fn register(&self, tables: Weak<dyn PageTables>) {
        let mut map = self.map.lock();
        let known = mem::take(&mut map.tables).into_iter();
        let (kept, gone): (Vec<_>, Vec<_>) = known.partition(|known| known.strong_count() > 0);
        map.tables = kept;
        map.tables.push(tables);
        drop(map);
        drop(gone);
    }

    fn find(&self, index: u64, access: Access, now_ns: impl FnOnce() -> u64) -> PinAttempt<'_, P> {
        let map = self.map.lock();
        match map.by_index.get(&index) {
            _ if map.is_blocked(index) => PinAttempt::NotNow,
            Some(range) if range.is_busy => PinAttempt::NotNow,
            Some(range) if range.is_writable || access == Access::Read => {
                self.window.pin(range.slot);
                PinAttempt::Pinned(Pin::new(&self.window, range.slot, range.is_writable))
            }
            found => match map.refused.get(index, access, now_ns) {
                Some((error, true)) => PinAttempt::Never(error),
                Some((_, false)) => PinAttempt::NotNow,
                None if found.is_some() => PinAttempt::ReadOnly,
                None => PinAttempt::Absent,
            },
        }
    }

    /// Returns whether a pin that was denied may be available now.
    fn may_have(&self, index: u64, access: Access, now_ns: u64) -> bool {
        let map = self.map.lock();
        if map.is_blocked(index) || map.refused.get(index, access, || now_ns).is_some() {
            return false;
        }
        match map.by_index.get(&index) {
            Some(range) => !range.is_busy && (range.is_writable || access == Access::Read),
            None => self.window.free_count() > 0,
        }
    }

    /// Marks `index` busy, to be mapped at `slot`. Returns false if it is already there, or must not be.
    fn begin(&self, index: u64, slot: u32) -> bool {
        let mut map = self.map.lock();
        if map.is_blocked(index) || map.by_index.contains_key(&index) {
            return false;
        }
        map.by_index.insert(index, Range { slot, is_writable: false, is_busy: true });
        true
    }

    /// Settles a busy range, and pins it.
    fn settle(&self, index: u64, slot: u32, is_writable: bool) -> Pin<'_, P> {
        let mut map = self.map.lock();
        map.by_index.insert(index, Range { slot, is_writable, is_busy: false });
        self.window.pin(slot);
        drop(map);
        self.window.announce();
        Pin::new(&self.window, slot, is_writable)
    }

    /// Removes a busy range.
    fn remove(&self, index: u64) {
        self.map.lock().by_index.remove(&index);
        self.window.announce();
    }

    /// Marks a range busy if it is settled, not pinned and not blocked. Returns its slot.
    fn take_idle(&self, index: u64, slot: Option<u32>) -> Option<u32> {
        let mut map = self.map.lock();
        if map.is_blocked(index) {
            return None;
        }
        let range = map.by_index.get_mut(&index)?;
        let is_meant = slot.is_none_or(|slot| range.slot == slot);
        if !is_meant || range.is_busy || !self.window.is_idle(range.slot) {
            return None;
        }
        range.is_busy = true;
        Some(range.slot)
    }

    fn unmark(&self, index: u64) {
        if let Some(range) = self.map.lock().by_index.get_mut(&index) {
            range.is_busy = false;
        }
        self.window.announce();
    }

    fn tables(&self) -> Vec<Arc<dyn PageTables>> {
        self.map.lock().tables.iter().filter_map(Weak::upgrade).collect()
    }

    /// Removes the range `index` at `slot`, if nobody uses it; the slot then belongs to the caller, and is still
    /// mapped.
    pub(super) fn release(&self, index: u64, slot: u32) -> bool {
        if self.take_idle(index, Some(slot)).is_none() {
            return false;
        }
        let is_released = self.tables().iter().all(|tables| tables.release(index));
        if is_released {
            self.remove(index);
        } else {
            self.unmark(index);
        }
        is_released
    }

    /// Returns why the server does not map the file for now; `None` if the server answered EAGAIN.
    fn refusal(&self, index: u64, access: Access, now_ns: u64) -> Option<Errno> {
        let refused = self.map.lock().refused;
        refused.get(index, access, || now_ns).map(|(error, _)| error).filter(|&error| error != Errno::AGAIN)
    }

    fn refuse(&self, index: u64, access: Access, error: Errno, now_ns: u64) {
        self.map.lock().refused.add(index, access, error, now_ns);
    }
}
