//! Stamps, and the transitions of one slot.

use crate::{
    atomic::{AtomicU64, Ordering, load},
    layout::HOT,
};

/// A value of the clock, from 0 to 2^63 - 1. At a change per nanosecond the clock lasts for 292 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp(pub(crate) u64);

impl Stamp {
    /// Creates a stamp, without the hot bit.
    pub const fn new(value: u64) -> Self {
        Self(value & !HOT)
    }

    /// Returns the value.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Raises a slot to `stamp` at least, keeps its hot bit, and returns its previous word.
pub(crate) fn raise(slot: &AtomicU64, stamp: Stamp) -> u64 {
    let mut word = slot.load(Ordering::Relaxed);
    while word & !HOT < stamp.0 {
        match slot.compare_exchange_weak(word, word & HOT | stamp.0, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return word,
            Err(found) => word = found,
        }
    }
    word
}

/// Raises a slot to `stamp` at least and sets its hot bit.
///
/// `stamp` is new, so that the word changes even if it is hot already: [`cool`] relies on it.
pub(crate) fn heat(slot: &AtomicU64, stamp: Stamp) {
    let mut word = slot.load(Ordering::Relaxed);
    loop {
        let hot = HOT | (word & !HOT).max(stamp.0);
        match slot.compare_exchange_weak(word, hot, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(_) => return,
            Err(found) => word = found,
        }
    }
}

/// Clears a slot's hot bit and gives it a new stamp, unless `is_held` says that somebody else needs it; returns whether
/// it did.
///
/// Whoever needs the bit announces that where `is_held` looks, and then calls [`heat`]. The word is loaded before
/// `is_held` looks: if an announcement comes too late for it, the word has changed and it looks again.
pub(crate) fn cool(slot: &AtomicU64, next: impl Fn() -> Stamp, mut is_held: impl FnMut() -> bool) -> bool {
    loop {
        let word = load(slot);
        if is_held() {
            return false;
        }
        let stamp = next();
        let cold = (word & !HOT).max(stamp.0);
        if slot.compare_exchange(word, cold, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return true;
        }
    }
}
