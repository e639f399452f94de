//! The attributes of one inode.

use transom_wire::attr::Attr;

use super::{Judge, Validity};

/// The attributes that were last received for an inode, and how long they stay valid.
#[derive(Default)]
pub(crate) struct Attributes {
    attr: Attr,
    validity: Validity,
    /// When this guest last changed the inode, by the volume's count of changes. The reply to an earlier request is not
    /// kept.
    changed_at: u64,
}

impl Attributes {
    /// Creates an empty cache for an inode that this guest may have changed at `changed_at`.
    pub(crate) fn changed_before(changed_at: u64) -> Self {
        Self { changed_at, ..Self::default() }
    }

    /// Returns when this guest last changed the inode.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// Returns the attributes if they are still valid without asking the server.
    pub(crate) fn get(&self, judge: &impl Judge) -> Option<&Attr> {
        self.validity.is_valid(judge).then_some(&self.attr)
    }

    /// Returns the size that was received last, in bytes, whether or not it is still valid.
    pub(crate) fn last_size(&self) -> u64 {
        self.attr.size.get()
    }

    /// Keeps the reply to a request made at `asked_at`. Returns false if a later change has made it stale.
    pub(crate) fn put(&mut self, attr: Attr, validity: Validity, asked_at: u64) -> bool {
        let is_current = self.changed_at <= asked_at;
        if is_current {
            self.attr = attr;
            self.validity = validity;
        }
        is_current
    }

    /// Records that this guest has changed, or is changing, the inode at `now`.
    pub(crate) fn change(&mut self, now: u64) {
        self.changed_at = now;
        self.validity = Validity::NEVER;
    }
}
