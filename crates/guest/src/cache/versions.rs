//! The version table of the daemon's coherence group, as the caches use it.

use alloc::sync::Arc;

pub use transom_versions::{AtomicU64 as TableWord, Region, TableError};
use transom_versions::{Moment, OwnChanges, Reader};

/// Memory that holds a version table, mapped for as long as this value lives.
pub trait TableMemory: Send + Sync {
    /// Returns its words.
    fn words(&self) -> &[TableWord];
}

impl<T: AsRef<[TableWord]> + Send + Sync> TableMemory for T {
    fn words(&self) -> &[TableWord] {
        self.as_ref()
    }
}

/// A version table by which [`CacheMode::Shared`](super::CacheMode::Shared) decides what is valid.
pub struct Versions(Reader<Memory>);

/// The slot of an inode in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotNumber(u32);

struct Memory(Arc<dyn TableMemory>);

impl AsRef<[TableWord]> for Memory {
    #[inline]
    fn as_ref(&self) -> &[TableWord] {
        self.0.words()
    }
}

impl SlotNumber {
    /// The inode's number is not known yet. No table has a slot with this number.
    pub(crate) const UNKNOWN: Self = Self(u32::MAX);

    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }
}

impl Versions {
    /// Checks the table in `memory`.
    ///
    /// # Errors
    /// If it is not a table of a known layout.
    pub fn new(memory: Arc<dyn TableMemory>) -> Result<Self, TableError> {
        Ok(Self(Reader::new(Memory(memory))?))
    }

    /// Returns the moment to keep with the reply of a request that is about to be sent.
    pub(crate) fn now(&self) -> Moment {
        self.0.now()
    }

    /// Returns the slot of the inode with the number `ino` (`attr.ino`).
    pub(crate) fn slot(&self, ino: u64) -> SlotNumber {
        SlotNumber(self.0.slot(ino).number())
    }

    /// Returns whether nobody but this guest, by the changes in `own`, has changed the inodes of a slot since
    /// `fetched`, and nobody can without a stamp.
    #[inline]
    pub(crate) fn is_unchanged(&self, slot: SlotNumber, fetched: Moment, own: &OwnChanges) -> bool {
        self.0.slot_at(slot.0.into()).is_some_and(|slot| self.0.is_slot_valid_but_for(slot, fetched, own))
    }
}
