//! The table of a group with all its mirrors: what is written to the one is written to the others before the call
//! returns.

use transom_versions::{Raised, Reader, Slot, Stamp, Writer};

use super::{mapping::Mapping, mirrors::Mirrors};

#[derive(Debug)]
pub(super) struct Table {
    master: Writer<Mapping>,
    mirrors: Mirrors,
}

impl Table {
    pub(super) fn new(master: Writer<Mapping>, mirrors: Mirrors) -> Self {
        Self { master, mirrors }
    }

    pub(super) fn reader(&self) -> &Reader<Mapping> {
        self.master.reader()
    }

    pub(super) fn master(&self) -> &Writer<Mapping> {
        &self.master
    }

    pub(super) fn mirrors(&self) -> &Mirrors {
        &self.mirrors
    }

    /// Stamps inodes that were changed.
    #[inline]
    pub(super) fn stamp(&self, slots: &[Slot]) -> Stamp {
        self.stamp_each(slots, |_, _| {})
    }

    /// As [`Self::stamp`]; calls `each` with each slot and how it was raised.
    #[inline]
    pub(super) fn stamp_each(&self, slots: &[Slot], mut each: impl FnMut(Slot, Raised)) -> Stamp {
        let stamp = self.master.next_stamp();
        for &slot in slots {
            let raised = self.master.raise_from(slot, stamp);
            self.mirror_slot(slot, raised.word);
            each(slot, raised);
        }
        stamp
    }

    /// As [`Writer::set_hot`].
    pub(super) fn set_hot(&self, slot: Slot) {
        self.mirror_slot(slot, self.master.set_hot(slot));
    }

    /// As [`Writer::clear_hot`].
    pub(super) fn clear_hot(&self, slot: Slot, is_held: impl FnMut() -> bool) {
        if let Some(word) = self.master.clear_hot(slot, is_held) {
            self.mirror_slot(slot, word);
        }
    }

    /// As [`Writer::raise_epoch`].
    pub(super) fn raise_epoch(&self) {
        self.master.raise_epoch();
        self.mirror_header();
    }

    /// As [`Writer::set_host_changes`].
    pub(super) fn set_host_changes(&self, are_stamped: bool) {
        self.master.set_host_changes(are_stamped);
        self.mirror_header();
    }

    #[inline]
    fn mirror_slot(&self, slot: Slot, word: u64) {
        self.mirrors.each_used(|mirror| {
            mirror.follow_slot(slot, word);
            mirror.follow_clock(&self.master);
        });
    }

    fn mirror_header(&self) {
        self.mirrors.each_used(|mirror| mirror.follow_header(&self.master));
    }
}
