//! Which parts of one file lie in the window, and how a part gets there.
//!
//! A range that somebody maps, upgrades or unmaps is busy: who wants it meanwhile goes another way, or waits. Pins are only
//! given of ranges that are settled, under the lock; a range is taken away, under the lock, when it is settled and not pinned.

use alloc::{
    sync::{Arc, Weak},
    vec::Vec,
};
use core::ops::Range as Span;

use hashbrown::HashMap;
use lock_api::Mutex;

use super::{Access, PageTables, Pin, RANGE_LEN, Window, mapped::Mapped, window::count};
use crate::{Errno, Platform, session::Caller, volume::Inode};

/// After a refusal that may pass nothing is asked for, for so long, in nanoseconds.
const REFUSED_FOR_NS: u64 = 1_000_000_000;
/// The same where the server says EAGAIN.
const AGAIN_AFTER_NS: u64 = 10_000_000;

/// The ranges of one inode.
pub struct Ranges<P: Platform> {
    pub(super) window: Arc<Window<P>>,
    map: Mutex<P::RawMutex, Map>,
    /// What those who map the file have in common, while there are any. Held over the lock of `map`.
    mapped: Mutex<P::RawMutex, Weak<Mapped<P>>>,
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

#[derive(Clone, Copy)]
struct Range {
    slot: u32,
    is_writable: bool,
    is_busy: bool,
}

/// What the server has refused.
#[derive(Clone, Copy, Default)]
struct Refused {
    error: Option<Errno>,
    /// Only to be written.
    is_for_writing: bool,
    /// Only this range: the end of a file, where that is not mapped.
    index: Option<u64>,
    /// Until then; `u64::MAX` for ever.
    until_ns: u64,
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
        Self { window, map: Mutex::default(), mapped: Mutex::new(Weak::new()) }
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

    /// What all who map the file have in common; it ends with the last of them.
    pub fn mapped(&self) -> Arc<Mapped<P>> {
        let mut known = self.mapped.lock();
        if let Some(mapped) = known.upgrade() {
            return mapped;
        }
        let mapped = Arc::<Mapped<P>>::default();
        *known = Arc::downgrade(&mapped);
        let tables: Weak<dyn PageTables> = Arc::downgrade(&mapped) as Weak<dyn PageTables>;
        self.register(tables);
        mapped
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
            _ if map.blocked.as_ref().is_some_and(|blocked| blocked.contains(&index)) => Found::NotNow,
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
        let is_blocked = map.blocked.as_ref().is_some_and(|blocked| blocked.contains(&index));
        if is_blocked || map.refused.get(index, access, || now_ns).is_some() {
            return false;
        }
        match map.by_index.get(&index) {
            Some(range) => !range.is_busy && (range.is_writable || access == Access::Read),
            None => !self.window.pool.lock().free.is_empty(),
        }
    }

    /// Marks `index` busy, to be mapped at `slot`. False where it is there by now, or must not be.
    fn begin(&self, index: u64, slot: u32) -> bool {
        let mut map = self.map.lock();
        let is_blocked = map.blocked.as_ref().is_some_and(|blocked| blocked.contains(&index));
        if is_blocked || map.by_index.contains_key(&index) {
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

    /// Marks what is settled and not pinned busy; gives its place.
    fn take_idle(&self, index: u64, slot: Option<u32>) -> Option<u32> {
        let mut map = self.map.lock();
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
        let soon_ns = now_ns.saturating_add(REFUSED_FOR_NS);
        let (index, until_ns) = match error {
            Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY | Errno::NOSYS | Errno::NODEV | Errno::INVAL => {
                (None, u64::MAX)
            }
            // A part that ends with the file may be whole one day; the parts before it are another matter.
            Errno::OPNOTSUPP if index > 0 => (Some(index), soon_ns),
            Errno::OPNOTSUPP => (None, u64::MAX),
            // The device was stopped meanwhile.
            Errno::AGAIN => (None, now_ns.saturating_add(AGAIN_AFTER_NS)),
            _ => (None, soon_ns),
        };
        let refused = Refused { error: Some(error), is_for_writing: access == Access::Write, index, until_ns };
        self.map.lock().refused.add(refused);
    }
}

impl Refused {
    /// The refusal that holds, and whether it holds for ever.
    fn get(&self, index: u64, access: Access, now_ns: impl FnOnce() -> u64) -> Option<(Errno, bool)> {
        let is_meant = self.index.is_none_or(|refused| refused == index);
        let error = self.error.filter(|_| is_meant && (access == Access::Write || !self.is_for_writing))?;
        let is_final = self.until_ns == u64::MAX;
        (is_final || now_ns() < self.until_ns).then_some((error, is_final))
    }

    /// A refusal of everything takes the place of one for writing, never the other way round.
    fn add(&mut self, refused: Self) {
        let keeps = self.error.is_some() && self.until_ns == u64::MAX && !self.is_for_writing;
        if !keeps {
            *self = refused;
        }
    }
}

impl<P: Platform> Inode<P> {
    /// Lends the range `index` of the file (`offset / RANGE_LEN`), mapping it if need be. `None` where it cannot be had now, or
    /// where the file is not mapped at all: requests do as well then.
    ///
    /// Blocks while the server maps; waits for nobody else. Takes locks of the window for a moment; [`PageTables::release`] of
    /// other ranges may be called. The range may extend beyond the end of the file, where there are no pages.
    pub fn pin(self: &Arc<Self>, index: u64, access: Access) -> Result<Option<Pin<'_, P>>, Errno> {
        match self.pin_worth(index, access, u32::MAX) {
            Ok(pin) => Ok(Some(pin)),
            Err(_) => Ok(None),
        }
    }

    /// As [`Self::pin`], and waits until the range can be had. Errors: why the server does not map the file, now or at all,
    /// but for EAGAIN; EOPNOTSUPP where it is not mapped in this volume.
    ///
    /// The caller holds nothing that whoever has a pin may wait for.
    pub fn pin_waiting(self: &Arc<Self>, index: u64, access: Access) -> Result<Pin<'_, P>, Errno> {
        /// Nobody announces that page tables would let a range go by now.
        const LOOK_AGAIN_NS: u64 = 10_000_000;
        let ranges = self.ranges().ok_or(Errno::OPNOTSUPP)?;
        loop {
            match self.pin_worth(index, access, u32::MAX) {
                Ok(pin) => return Ok(pin),
                Err(Denied::Never(error)) => return Err(error),
                Err(Denied::NotNow) => {
                    if let Some(error) = ranges.refusal(index, access, self.now_ns()) {
                        return Err(error);
                    }
                    let deadline_ns = self.now_ns().saturating_add(LOOK_AGAIN_NS);
                    ranges.window.wait(|| ranges.may_have(index, access, self.now_ns()), Some(deadline_ns));
                }
            }
        }
    }

    /// As [`Self::pin`]; in a full window only where the range saves `worth` requests now, or did of late.
    pub(crate) fn pin_worth(self: &Arc<Self>, index: u64, access: Access, worth: u32) -> Result<Pin<'_, P>, Denied> {
        let ranges = self.ranges().ok_or(Denied::Never(Errno::OPNOTSUPP))?;
        match ranges.find(index, access, || self.now_ns()) {
            Found::Pinned(pin) => Ok(pin),
            Found::NotNow => Err(Denied::NotNow),
            Found::Never(error) => Err(Denied::Never(error)),
            Found::ReadOnly => self.upgrade(ranges, index),
            Found::Absent => self.map_range(ranges, index, access, worth),
        }
    }

    fn map_range<'r>(
        self: &Arc<Self>,
        ranges: &'r Ranges<P>,
        index: u64,
        access: Access,
        worth: u32,
    ) -> Result<Pin<'r, P>, Denied> {
        let window = &ranges.window;
        let place = window.take_place(self, index, worth).ok_or(Denied::NotNow)?;
        if !ranges.begin(index, place.slot) {
            self.give_back(window, place);
            return Err(Denied::NotNow);
        }
        match self.ask_mapping(index, place.slot, access) {
            Ok(()) => {
                count(&window.tally.mapped);
                window.slot(place.slot).heat.reset();
                window.own(place.slot, self, index);
                Ok(ranges.settle(index, place.slot, access == Access::Write))
            }
            Err(error) => {
                count(&window.tally.refused);
                ranges.refuse(index, access, error, self.now_ns());
                ranges.remove(index);
                self.give_back(window, place);
                Err(Denied::NotNow)
            }
        }
    }

    /// Makes a range writable, once nobody reads through it: some front ends can only unmap it and map it again.
    fn upgrade<'r>(self: &Arc<Self>, ranges: &'r Ranges<P>, index: u64) -> Result<Pin<'r, P>, Denied> {
        let window = &ranges.window;
        let slot = ranges.take_idle(index, None).ok_or(Denied::NotNow)?;
        let is_released = ranges.tables().iter().all(|tables| tables.release(index));
        if !is_released {
            ranges.unmark(index);
            return Err(Denied::NotNow);
        }
        match self.ask_mapping(index, slot, Access::Write) {
            Ok(()) => {
                count(&window.tally.upgraded);
                Ok(ranges.settle(index, slot, true))
            }
            Err(error) => {
                // Whether it is still mapped is not known.
                count(&window.tally.refused);
                ranges.refuse(index, Access::Write, error, self.now_ns());
                ranges.remove(index);
                self.give_back(window, super::reclaim::Place { slot, mapped: Some(self.nodeid()) });
                Err(Denied::NotNow)
            }
        }
    }

    fn ask_mapping(&self, index: u64, slot: u32, access: Access) -> Result<(), Errno> {
        let foffset = index.checked_mul(RANGE_LEN).ok_or(Errno::FBIG)?;
        let moffset = u64::from(slot) * RANGE_LEN;
        let is_writable = access == Access::Write;
        self.session().setupmapping(&Caller::default(), self.nodeid(), foffset, RANGE_LEN, moffset, is_writable)
    }

    /// Takes back a place that came to nothing.
    fn give_back(&self, window: &Window<P>, place: super::reclaim::Place) {
        if let Some(node) = place.mapped {
            window.unmap(self.session(), node, &[place.slot]);
        }
        window.put_free([place.slot]);
    }

    /// Keeps the parts of the file that `bytes` touch from being pinned, with their pages out of all page tables, until what is
    /// returned is dropped. `None` where the file has no ranges.
    ///
    /// Waits for pins. The caller holds `size_lock`, and no pin.
    pub(crate) fn block(&self, bytes: Span<u64>, with_copies: bool) -> Option<Blocked<'_, P>> {
        let ranges = self.ranges()?;
        let span = bytes.start / RANGE_LEN..bytes.end.div_ceil(RANGE_LEN);
        ranges.map.lock().blocked = Some(span.clone());
        let blocked = Blocked { ranges, span: span.clone() };
        let is_free = || {
            let map = ranges.map.lock();
            let mut inside = map.by_index.iter().filter(|(index, _)| span.contains(index));
            inside.all(|(_, range)| !range.is_busy && ranges.window.is_idle(range.slot))
        };
        ranges.window.wait(is_free, None);
        ranges.tables().iter().for_each(|tables| tables.revoke(bytes.clone(), with_copies));
        Some(blocked)
    }

    /// Unmaps every range: nobody refers to the inode any more.
    pub(crate) fn drop_ranges(&mut self) {
        let Some(ranges) = self.take_ranges() else { return };
        let slots: Vec<_> = ranges.map.lock().by_index.drain().map(|(_, range)| range.slot).collect();
        if !slots.is_empty() {
            ranges.window.unmap(self.session(), self.nodeid(), &slots);
            ranges.window.put_free(slots);
        }
    }
}

/// Parts of a file that nobody may pin.
#[must_use = "the parts may be pinned at once"]
pub(crate) struct Blocked<'i, P: Platform> {
    ranges: &'i Ranges<P>,
    span: Span<u64>,
}

impl<P: Platform> Blocked<'_, P> {
    /// Unmaps the ranges that lie wholly behind `end`, in bytes, of the file.
    pub(crate) fn unmap_behind(&self, inode: &Inode<P>, end: u64) {
        let first = end.div_ceil(RANGE_LEN);
        let mut map = self.ranges.map.lock();
        let gone = map.by_index.extract_if(|&index, _| index >= first && self.span.contains(&index));
        let slots: Vec<_> = gone.map(|(_, range)| range.slot).collect();
        drop(map);
        if !slots.is_empty() {
            self.ranges.window.unmap(inode.session(), inode.nodeid(), &slots);
            self.ranges.window.put_free(slots);
        }
    }
}

impl<P: Platform> Drop for Blocked<'_, P> {
    fn drop(&mut self) {
        self.ranges.map.lock().blocked = None;
        self.ranges.window.announce();
    }
}
