//! What a guest does with the table.

use crate::{
    AtomicU64, Keys, OwnChanges, Slot, Stamp, TableError,
    atomic::load,
    layout::{
        CLOCK_AT, EPOCH_AT, FLAG_HOST_CHANGES, FLAGS_AT, HEADER_WORDS, HOT, KEY0_AT, KEY1_AT, LAYOUT, LAYOUT_AT, MAGIC,
        MAGIC_AT, SLOTS_LOG2_MAX, SLOTS_LOG2_MIN, WORD_LEN, len_bytes,
    },
};

/// The version table, for reading: over [`Region`](crate::Region), or whatever else has words.
///
/// The daemon can write what it likes at any time, so a reader trusts nothing but its own copy of the header: a wrong
/// table leads to wrong answers about validity, and to nothing else.
#[derive(Debug, Clone)]
pub struct Reader<M> {
    pub(crate) memory: M,
    pub(crate) keys: Keys,
    pub(crate) mask: u32,
}

/// When something was fetched: the epoch and the clock, as they were before the request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// The epoch. Something that is fetched again under the same epoch may advance its clock.
    pub epoch: u64,
    /// The clock.
    pub clock: Stamp,
}

impl<M: AsRef<[AtomicU64]>> Reader<M> {
    /// Creates a reader, after a check of the header.
    ///
    /// # Errors
    /// If the memory is not a table of a known layout, or shorter than its header says.
    pub fn new(memory: M) -> Result<Self, TableError> {
        let words = memory.as_ref();
        let word_bytes = words.len() * WORD_LEN;
        if words.len() < HEADER_WORDS {
            return Err(TableError::NoHeader { len_bytes: word_bytes });
        }
        let found = load(&words[MAGIC_AT]);
        if found != MAGIC {
            return Err(TableError::Magic { found });
        }
        let sizes = load(&words[LAYOUT_AT]);
        let (layout, slots_log2) = (sizes as u32, (sizes >> 32) as u32);
        if layout != LAYOUT {
            return Err(TableError::Layout { found: layout });
        }
        if !(SLOTS_LOG2_MIN..=SLOTS_LOG2_MAX).contains(&slots_log2) {
            return Err(TableError::Slots { found: slots_log2 });
        }
        let needed_bytes = len_bytes(slots_log2);
        if word_bytes < needed_bytes {
            return Err(TableError::Short { len_bytes: word_bytes, needed_bytes });
        }
        let (keys, mask) = (Keys(load(&words[KEY0_AT]), load(&words[KEY1_AT])), (1 << slots_log2) - 1);
        Ok(Self { memory, keys, mask })
    }

    /// Returns the moment to keep with what is fetched. Call it *before* the request is sent.
    #[inline]
    pub fn now(&self) -> Moment {
        let words = self.memory.as_ref();
        Moment { epoch: load(&words[EPOCH_AT]), clock: Stamp::new(load(&words[CLOCK_AT])) }
    }

    /// Returns whether what was fetched of inode `ino` (`attr.ino`) at `fetched` is still what the server would answer:
    /// nobody has changed the inode since, and nobody can change it without a stamp.
    ///
    /// A name, absent ones included, is validated by the inode of its directory.
    #[inline]
    pub fn is_valid(&self, ino: u64, fetched: Moment) -> bool {
        self.is_slot_valid(self.slot(ino), fetched)
    }

    /// As [`Self::is_valid`], for a caller that keeps the slot and so need not compute the hash again.
    #[inline]
    pub fn is_slot_valid(&self, slot: Slot, fetched: Moment) -> bool {
        let words = self.memory.as_ref();
        // The hot bit is the highest, so that a hot slot exceeds every clock.
        load(&words[slot.word()]) <= fetched.clock.0 && load(&words[EPOCH_AT]) == fetched.epoch
    }

    /// As [`Self::is_slot_valid`], but changes by this guest, in `own`, do not count: the guest has applied them to
    /// what it has cached.
    #[inline]
    pub fn is_slot_valid_but_for(&self, slot: Slot, fetched: Moment, own: &OwnChanges) -> bool {
        let words = self.memory.as_ref();
        let word = load(&words[slot.word()]);
        // The end of a range has no hot bit, so that it is no hot slot's word.
        (word <= fetched.clock.0 || own.explain(word, fetched.clock)) && load(&words[EPOCH_AT]) == fetched.epoch
    }

    /// Returns the slot of inode `ino`, which never changes.
    #[inline]
    pub fn slot(&self, ino: u64) -> Slot {
        self.keys.slot(ino, self.mask)
    }

    /// Returns the slot with that number, or `None` if there are fewer slots.
    pub fn slot_at(&self, number: u64) -> Option<Slot> {
        (number < self.slots()).then(|| Slot::new(number as u32))
    }

    /// Returns whether nothing cached of the slot's inodes may be used, because they change without stamps.
    pub fn is_hot(&self, slot: Slot) -> bool {
        load(&self.memory.as_ref()[slot.word()]) & HOT != 0
    }

    /// Returns whether the host's own changes are stamped too.
    pub fn stamps_host_changes(&self) -> bool {
        load(&self.memory.as_ref()[FLAGS_AT]) & FLAG_HOST_CHANGES != 0
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u64 {
        u64::from(self.mask) + 1
    }
}

#[cfg(all(test, not(feature = "loom"), target_endian = "little"))]
#[path = "reader_test.rs"]
mod tests;

#[cfg(all(test, not(feature = "loom")))]
#[path = "reader_bytes_test.rs"]
mod bytes_tests;
