//! Decides what is cached of an inode, and what of it is still valid.

use core::sync::atomic::Ordering;

use transom_versions::{Moment, OwnChanges};
use transom_wire::attr::Attr;

use super::{Inode, Shared};
use crate::{
    Platform,
    cache::{Judge, Validity, versions::SlotNumber},
    session::RaisedSlots,
};

/// The state before a request was sent whose reply is to be cached.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskedAt {
    /// The volume's count of this guest's changes.
    pub(super) changes: u64,
    /// The moment by the version table.
    pub(super) moment: Option<Moment>,
}

/// Judges what is cached of one inode.
pub(crate) struct InodeJudge<'a, P: Platform> {
    shared: &'a Shared<P>,
    slot: SlotNumber,
    own: &'a OwnChanges,
}

impl<P: Platform> Judge for InodeJudge<'_, P> {
    fn now_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    /// Without its daemon, this guest would not hear of the end of the table.
    fn is_unchanged(&self, fetched: Moment) -> bool {
        self.shared.versions.as_ref().is_some_and(|versions| versions.is_unchanged(self.slot, fetched, self.own))
            && !self.shared.session.channel().is_gone()
    }
}

impl<P: Platform> Shared<P> {
    /// Returns the state to keep with a reply; to be called before the request is sent.
    pub(super) fn asked_at(&self) -> AskedAt {
        AskedAt {
            changes: self.changes.load(Ordering::Acquire),
            moment: self.versions.as_ref().map(|table| table.now()),
        }
    }

    /// Returns how long a reply is valid that gives this time, in seconds and nanoseconds.
    pub(super) fn validity(&self, asked_at: AskedAt, seconds: u64, nanoseconds: u32) -> Validity {
        Validity::of_reply(self.options.mode, asked_at.moment, || self.now_ns(), seconds, nanoseconds)
    }

    /// Returns the slot of the inode with these attributes.
    pub(super) fn slot_of(&self, attr: &Attr) -> SlotNumber {
        self.versions.as_ref().map_or(SlotNumber::UNKNOWN, |versions| versions.slot(attr.ino.get()))
    }
}

impl<P: Platform> Inode<P> {
    /// Returns what decides whether data cached of this inode, or names cached of this directory, are valid.
    pub(crate) fn judge(&self) -> InodeJudge<'_, P> {
        InodeJudge { shared: &self.shared, slot: self.slot(), own: &self.own }
    }

    /// Takes note of changes of this inode that this guest has made itself, as the replies have told. Call it *after*
    /// everything cached of the inode shows them or is dropped, since what is cached may be used again from now on.
    pub(super) fn account_for(&self, raised: &RaisedSlots) {
        // One thread at a time joins.
        let _attributes = self.attributes.lock();
        raised.each_of(self.slot().bits(), |raised| self.own.join(raised));
    }

    /// Returns whether the version table decides about this inode, but its number, and so its slot, is not known yet.
    /// Every reply that names an inode shows its number; only the root is there without one.
    pub(super) fn lacks_slot(&self) -> bool {
        self.shared.versions.is_some() && self.slot() == SlotNumber::UNKNOWN
    }
}
