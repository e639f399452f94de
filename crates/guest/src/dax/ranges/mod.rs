//! Which parts of one file lie in the window, and how a part gets there.
//!
//! A range that somebody maps, upgrades or unmaps is busy: who wants it meanwhile goes another way, or waits. Pins are
//! only given of ranges that are settled, under the lock; a range is taken away, under the lock, when it is settled and
//! not pinned. Of a part that is blocked no pin is given, and no range becomes busy: whoever changes the file there has
//! it alone.
//!
//! [`pinning`] asks the server, [`block`] keeps others away while the file is changed, [`refused`] is what the server
//! has said no to.

mod block;
#[cfg(all(test, feature = "loom"))]
mod loom_test;
mod pinning;
mod refused;

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::ops::Range as Span;

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
    /// What those who map the file have in common, once somebody does: it records what was stored and not flushed. Held
    /// over the lock of `map`.
    mapped: Mutex<P, { rank::MAPPED }, Option<Arc<Mapped<P>>>>,
}

#[derive(Default)]
struct Map {
    /// By `offset / RANGE_LEN` in the file.
    by_index: HashMap<u64, Range>,
    /// Parts of the file that nobody may pin: it is being changed there.
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

/// What there is of a range.
enum Found<'r, P: Platform> {
    Pinned(Pin<'r, P>),
    /// Mapped for reading.
    ReadOnly,
    Absent,
    NotNow,
    Never(Errno),
}

/// Why there is no pin.
pub(crate) enum Denied {
    /// It may be given later.
    NotNow,
    /// The server maps no such file.
    Never(Errno),
}

impl<P: Platform> Ranges<P> {
    pub(crate) fn new(window: Arc<Window<P>>) -> Self {
        Self { window, map: Mutex::default(), mapped: Mutex::default() }
    }

    /// The window that they lie in.
    pub fn window(&self) -> &Arc<Window<P>> {
        &self.window
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.map.lock().by_index.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns what all who map the file have in common. It lives as long as the inode.
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

    /// Has `tables` asked before a range goes, for as long as they live.
    pub fn register(&self, tables: Weak<dyn PageTables>) {
        let mut map = self.map.lock();
        let gone: Vec<_> = map.tables.extract_if(.., |known| known.strong_count() == 0).collect();
        map.tables.push(tables);
        drop(map);
        drop(gone);
    }

    fn find(&self, index: u64, access: Access, now_ns: impl FnOnce() -> u64) -> Found<'_, P> {
        let map = self.map.lock();
        match map.by_index.get(&index) {
            _ if map.is_blocked(index) => Found::NotNow,
            Some(range) if range.is_busy => Found::NotNow,
            Some(range) if range.is_writable || access == Access::Read => {
                self.window.pin(range.slot);
                Found::Pinned(Pin::new(&self.window, range.slot, range.is_writable))
            }
            found => match map.refused.get(index, access, now_ns) {
                Some((error, true)) => Found::Never(error),
                Some((_, false)) => Found::NotNow,
                None if found.is_some() => Found::ReadOnly,
                None => Found::Absent,
            },
        }
    }

    /// Whether a pin that was denied may be given by now.
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

    /// Marks `index` busy, to be mapped at `slot`. False where it is there by now, or must not be.
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

    /// Takes a busy range out.
    fn remove(&self, index: u64) {
        self.map.lock().by_index.remove(&index);
        self.window.announce();
    }

    /// Marks what is settled, not pinned and not blocked busy; gives its place.
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

    /// Takes the range `index` at `slot` out, if nobody uses it; the place is then the caller's, and still mapped.
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

    /// Why the server maps nothing for the time being; nothing where it has asked to be asked again.
    fn refusal(&self, index: u64, access: Access, now_ns: u64) -> Option<Errno> {
        let refused = self.map.lock().refused;
        refused.get(index, access, || now_ns).map(|(error, _)| error).filter(|&error| error != Errno::AGAIN)
    }

    fn refuse(&self, index: u64, access: Access, error: Errno, now_ns: u64) {
        self.map.lock().refused.add(index, access, error, now_ns);
    }
}
