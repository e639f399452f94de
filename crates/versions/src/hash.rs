//! Which slot an inode has: SipHash-1-3 of its number, as Linux's `hsiphash()` computes it on 64-bit machines.

use siphasher::sip::SipHasher13;

use crate::layout::HEADER_WORDS;

/// Keys of the hash. They are random, so that a guest cannot choose names whose inodes share a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keys(pub u64, pub u64);

/// A slot of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);

impl Keys {
    /// Returns the lower 32 bits of the hash of `bytes`.
    fn hash(self, bytes: &[u8]) -> u32 {
        SipHasher13::new_with_keys(self.0, self.1).hash(bytes) as u32
    }

    /// Returns the slot of `ino` (`attr.ino`) in a table with `mask + 1` slots.
    #[inline]
    pub(crate) fn slot(self, ino: u64, mask: u32) -> Slot {
        Slot(self.hash(&ino.to_le_bytes()) & mask)
    }
}

impl Slot {
    /// The caller has checked that the table has that many slots.
    pub(crate) fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the slot's number, from 0.
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the index of the slot's word in the table.
    #[inline]
    pub(crate) fn word(self) -> usize {
        HEADER_WORDS + self.0 as usize
    }
}

#[cfg(test)]
#[path = "hash_test.rs"]
mod tests;
