//! The attributes of one inode.

use transom_wire::attr::Attr;

use super::Validity;

/// What was last told of an inode, and until when it holds.
#[derive(Default)]
pub(crate) struct Attributes {
    attr: Attr,
    validity: Validity,
    /// When this guest last changed the inode, by the volume's count of changes: what was asked before is not kept.
    changed_at: u64,
}

impl Attributes {
    /// Nothing that may be used, of an inode that this guest may have changed at `changed_at`.
    pub(crate) fn changed_before(changed_at: u64) -> Self {
        Self { changed_at, ..Self::default() }
    }

    /// When this guest last changed the inode.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// What may be used without asking.
    pub(crate) fn get(&self, now_ns: impl FnOnce() -> u64) -> Option<&Attr> {
        self.validity.is_valid(now_ns).then_some(&self.attr)
    }

    /// The size that was told last, whether it holds or not; in bytes.
    pub(crate) fn last_size(&self) -> u64 {
        self.attr.size.get()
    }

    /// Keeps the answer to what was asked at `asked_at`; false where a change has overtaken it.
    pub(crate) fn put(&mut self, attr: Attr, validity: Validity, asked_at: u64) -> bool {
        let is_current = self.changed_at <= asked_at;
        if is_current {
            self.attr = attr;
            self.validity = validity;
        }
        is_current
    }

    /// Says that this guest has changed, or is changing, the inode at `now`.
    pub(crate) fn change(&mut self, now: u64) {
        self.changed_at = now;
        self.validity = Validity::NEVER;
    }
}
