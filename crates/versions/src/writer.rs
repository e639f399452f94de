//! What a daemon does with the table. Only little-endian machines can: the clock is advanced in place.

use crate::{
    AtomicU64, Keys, Raised, Reader, Slot, Stamp, TableError,
    atomic::{Ordering, load},
    layout::{
        CLOCK_AT, EPOCH_AT, FLAG_HOST_CHANGES, FLAGS_AT, HEADER_WORDS, KEY0_AT, KEY1_AT, LAYOUT, LAYOUT_AT, MAGIC,
        MAGIC_AT, SLOTS_LOG2_MAX, SLOTS_LOG2_MIN, WORD_LEN, len_bytes,
    },
    stamp::{cool, heat, raise},
};

/// The version table, for writing: the memory is mapped for reading and writing.
#[derive(Debug, Clone)]
pub struct Writer<M> {
    table: Reader<M>,
}

impl<M: AsRef<[AtomicU64]>> Writer<M> {
    /// Makes zeroed memory a table with `1 << slots_log2` slots.
    ///
    /// # Errors
    /// If the number of slots is outside the limits, or the memory too short for it.
    pub fn format(memory: M, slots_log2: u32, keys: Keys) -> Result<Self, TableError> {
        if !(SLOTS_LOG2_MIN..=SLOTS_LOG2_MAX).contains(&slots_log2) {
            return Err(TableError::Slots { found: slots_log2 });
        }
        let words = memory.as_ref();
        let (found_bytes, needed_bytes) = (words.len() * WORD_LEN, len_bytes(slots_log2));
        if words.len() < HEADER_WORDS || found_bytes < needed_bytes {
            return Err(TableError::Short { len_bytes: found_bytes, needed_bytes });
        }
        words[LAYOUT_AT].store(u64::from(slots_log2) << 32 | u64::from(LAYOUT), Ordering::Relaxed);
        words[KEY0_AT].store(keys.0, Ordering::Relaxed);
        words[KEY1_AT].store(keys.1, Ordering::Relaxed);
        // Last: whoever sees the magic sees the rest.
        words[MAGIC_AT].store(MAGIC, Ordering::Release);
        Self::new(memory)
    }

    /// Creates a writer of a table that exists.
    ///
    /// # Errors
    /// As for [`Reader::new`].
    pub fn new(memory: M) -> Result<Self, TableError> {
        Ok(Self { table: Reader::new(memory)? })
    }

    /// Returns the table for reading.
    pub fn reader(&self) -> &Reader<M> {
        &self.table
    }

    /// Advances the clock and returns the stamp for a change. Call it *after* the change, and raise the slot of each
    /// inode that was changed to it before anyone is told that the change is complete.
    #[inline]
    pub fn next_stamp(&self) -> Stamp {
        Stamp::new(self.word(CLOCK_AT).fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Raises `slot` to `stamp`, or to a later one if another change has raised it further. Returns the new word: the
    /// stamp, and the hot bit.
    #[inline]
    pub fn raise(&self, slot: Slot, stamp: Stamp) -> u64 {
        self.raise_from(slot, stamp).word
    }

    /// Does the same as [`Self::raise`], and also returns the word that it has replaced: no other change lies between.
    #[inline]
    pub fn raise_from(&self, slot: Slot, stamp: Stamp) -> Raised {
        raise(self.slot_word(slot), stamp, || self.next_stamp())
    }

    /// Makes `slot` hot, with a new stamp: from now on nobody uses what is cached of its inodes.
    ///
    /// The caller has announced its need where [`Self::clear_hot`] of others looks. Returns the new word.
    pub fn set_hot(&self, slot: Slot) -> u64 {
        heat(self.slot_word(slot), || self.next_stamp())
    }

    /// Ends the heat of `slot` with a new stamp, unless `is_held` says that somebody else needs it. Returns the new
    /// word if it did.
    ///
    /// The caller has withdrawn its own need. `is_held` may be called more than once.
    pub fn clear_hot(&self, slot: Slot, is_held: impl FnMut() -> bool) -> Option<u64> {
        cool(self.slot_word(slot), || self.next_stamp(), is_held)
    }

    /// Raises the epoch: everything that any guest has cached becomes invalid.
    pub fn raise_epoch(&self) {
        self.word(EPOCH_AT).fetch_add(1, Ordering::SeqCst);
    }

    /// States whether the host's own changes are stamped too.
    pub fn set_host_changes(&self, are_stamped: bool) {
        match are_stamped {
            true => self.word(FLAGS_AT).fetch_or(FLAG_HOST_CHANGES, Ordering::SeqCst),
            false => self.word(FLAGS_AT).fetch_and(!FLAG_HOST_CHANGES, Ordering::SeqCst),
        };
    }

    /// Writes what never changes into a mirror: sizes, keys, and last the magic.
    pub(crate) fn copy_identity(&self, mirror: &[AtomicU64]) {
        for at in [LAYOUT_AT, KEY0_AT, KEY1_AT] {
            mirror[at].store(load(self.word(at)), Ordering::Relaxed);
        }
        mirror[MAGIC_AT].store(MAGIC, Ordering::Release);
    }

    /// Returns the word of a slot.
    pub(crate) fn word_of(&self, slot: Slot) -> u64 {
        load(self.slot_word(slot))
    }

    /// Returns the flags.
    pub(crate) fn flags(&self) -> u64 {
        load(self.word(FLAGS_AT))
    }

    fn slot_word(&self, slot: Slot) -> &AtomicU64 {
        self.word(slot.word())
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        &self.table.memory.as_ref()[index]
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "writer_test.rs"]
mod tests;
