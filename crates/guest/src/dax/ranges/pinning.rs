//! How a range gets into the window: the requests to the server, and their results.

use alloc::{sync::Arc, vec::Vec};

use super::{Denied, PinAttempt, Ranges};
use crate::{
    Errno, Platform,
    dax::{Access, Pin, RANGE_LEN, Window, reclaim::FreeRange, window::count},
    session::Caller,
    volume::Inode,
};

impl<P: Platform> Inode<P> {
    /// Pins the range `index` of the file (`offset / RANGE_LEN`), mapping it if needed. Returns `None` if it is not
    /// available now, or if the file is not mapped at all; the caller can use requests instead.
    ///
    /// Blocks while the server maps; waits for nobody else. Takes locks of the window for short sections; may call
    /// [`PageTables::release`](crate::dax::PageTables::release) for other ranges. The range may extend beyond the end
    /// of the file, where there are no pages.
    pub fn pin(self: &Arc<Self>, index: u64, access: Access) -> Result<Option<Pin<'_, P>>, Errno> {
        match self.pin_worth(index, access, u32::MAX) {
            Ok(pin) => Ok(Some(pin)),
            Err(_) => Ok(None),
        }
    }

    /// As [`Self::pin`], but waits until the range is available. Errors: the reason why the server does not map the
    /// file, now or ever, except EAGAIN; EOPNOTSUPP if the file is not mapped in this volume.
    ///
    /// The caller holds nothing that the holder of a pin may wait for.
    pub fn pin_waiting(self: &Arc<Self>, index: u64, access: Access) -> Result<Pin<'_, P>, Errno> {
        /// There is no event for page tables that would release a range by now.
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

    /// As [`Self::pin`]; in a full window only if the range saves `worth` requests now, or did so recently.
    pub(crate) fn pin_worth(self: &Arc<Self>, index: u64, access: Access, worth: u32) -> Result<Pin<'_, P>, Denied> {
        let ranges = self.ranges().ok_or(Denied::Never(Errno::OPNOTSUPP))?;
        match ranges.find(index, access, || self.now_ns()) {
            PinAttempt::Pinned(pin) => Ok(pin),
            PinAttempt::NotNow => Err(Denied::NotNow),
            PinAttempt::Never(error) => Err(Denied::Never(error)),
            PinAttempt::ReadOnly => self.upgrade(ranges, index),
            PinAttempt::Absent => self.map_range(ranges, index, access, worth),
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
        let (place, credit) = window.take_range(self, index, worth).ok_or(Denied::NotNow)?;
        if !ranges.begin(index, place.slot) {
            self.give_back(window, place);
            return Err(Denied::NotNow);
        }
        match self.ask_mapping(index, place.slot, access) {
            Ok(()) => {
                count(&window.tally.mapped);
                window.slot(place.slot).heat.begin(window.admission.epoch(), credit);
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
                // It is unknown whether the range is still mapped.
                count(&window.tally.refused);
                ranges.refuse(index, Access::Write, error, self.now_ns());
                ranges.remove(index);
                self.give_back(window, FreeRange { slot, mapped: Some(self.nodeid()) });
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

    /// Returns a slot that was not used after all.
    fn give_back(&self, window: &Window<P>, place: FreeRange) {
        if let Some(node) = place.mapped {
            window.unmap(self.session(), node, &[place.slot]);
        }
        window.put_free([place.slot]);
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
