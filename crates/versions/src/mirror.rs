//! A copy of the table for one guest, whose front end maps everything writable.
//!
//! Writers change the table first and then each mirror, before anyone is told that the change is complete. The words of
//! a slot have rising stamps, so whoever is late knows it by the stamp and leaves the word as it is; the clock, the
//! epoch and the slots of a mirror never exceed the table's and never go back. The guest may write anything into its
//! mirror: nothing of it is believed, and no writer waits for it.

use crate::{
    AtomicU64, Slot, TableError, Writer,
    atomic::{Ordering, load},
    layout::{CLOCK_AT, EPOCH_AT, FLAGS_AT, HEADER_WORDS, HOT},
};

/// Tries to change a word before it is overwritten. Other writers make a try fail only if they raise the word further,
/// so that only a guest that writes it all the time makes all of them fail.
const TRIES: usize = 1000;

/// The mirror of a table, for writing.
#[derive(Debug)]
pub struct Mirror<M>(M);

impl<M: AsRef<[AtomicU64]>> Mirror<M> {
    /// Takes memory as the mirror of `table`. It has to be [filled](Self::fill) before the guest gets it.
    ///
    /// # Errors
    /// If the memory is too short.
    pub fn new<T: AsRef<[AtomicU64]>>(memory: M, table: &Writer<T>) -> Result<Self, TableError> {
        let (found, needed) = (memory.as_ref().len(), HEADER_WORDS + table.reader().slots() as usize);
        let bytes = |words: usize| words * size_of::<u64>();
        match found >= needed {
            true => Ok(Self(memory)),
            false => Err(TableError::Short { len_bytes: bytes(found), needed_bytes: bytes(needed) }),
        }
    }

    /// Fills new memory from the table. Writers know of the mirror already: what they change meanwhile is in the table
    /// when it is read here, or they change it here too.
    pub fn fill<T: AsRef<[AtomicU64]>>(&self, table: &Writer<T>) {
        let reader = table.reader();
        for slot in (0..reader.slots()).filter_map(|number| reader.slot_at(number)) {
            self.follow_slot(slot, table.word_of(slot));
        }
        self.follow_header(table);
        table.copy_identity(self.0.as_ref());
    }

    /// Raises a slot to the word that the table's slot has or had.
    #[inline]
    pub fn follow_slot(&self, slot: Slot, word: u64) {
        follow(&self.0.as_ref()[slot.word()], word, !HOT);
    }

    /// Returns the word of a slot, for models.
    #[cfg(all(test, feature = "loom"))]
    pub(crate) fn word_of(&self, slot: Slot) -> u64 {
        load(&self.0.as_ref()[slot.word()])
    }

    /// Raises the clock. Call it after [`Self::follow_slot`] for the slots of the change.
    #[inline]
    pub fn follow_clock<T: AsRef<[AtomicU64]>>(&self, table: &Writer<T>) {
        follow(&self.0.as_ref()[CLOCK_AT], table.reader().now().clock.get(), u64::MAX);
    }

    /// Copies the flags, and raises epoch and clock. The flags are never older than the epoch: it is raised because
    /// they have changed.
    pub fn follow_header<T: AsRef<[AtomicU64]>>(&self, table: &Writer<T>) {
        let epoch = table.reader().now().epoch;
        self.follow_flags(table);
        follow(&self.0.as_ref()[EPOCH_AT], epoch, u64::MAX);
        self.follow_clock(table);
    }

    /// Copies the flags. They have no stamps: whoever stores them looks again whether the table still has them, so that
    /// the last one who stores is right. The swap reads what the one before has stored, and so sees what it has seen.
    fn follow_flags<T: AsRef<[AtomicU64]>>(&self, table: &Writer<T>) {
        for _ in 0..TRIES {
            let flags = table.flags();
            self.0.as_ref()[FLAGS_AT].swap(flags, Ordering::SeqCst);
            if table.flags() == flags {
                return;
            }
        }
    }
}

impl<M: AsRef<[AtomicU64]>> Mirror<M> {
    /// Makes every slot hot for good: nobody writes the mirror any more, so nothing may be used that it says is valid.
    pub fn retire(&self) {
        for slot in &self.0.as_ref()[HEADER_WORDS..] {
            // The highest stamp, so that a writer that is late leaves it as it is.
            slot.store(u64::MAX, Ordering::SeqCst);
        }
    }
}

/// Raises `at` to `word`, unless it is there already. Bits outside of `order` do not count for that.
#[inline]
fn follow(at: &AtomicU64, word: u64, order: u64) {
    let mut found = load(at);
    for _ in 0..TRIES {
        if found & order >= word & order {
            return;
        }
        match at.compare_exchange_weak(found, word, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => return,
            Err(other) => found = other,
        }
    }
    at.store(word, Ordering::SeqCst);
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "mirror_test.rs"]
mod tests;
