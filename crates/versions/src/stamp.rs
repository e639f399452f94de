//! Stamps, and the transitions of one slot.

use crate::{
    Raised,
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

/// Raises a slot to `stamp`, keeps its hot bit, and returns the words before and after.
///
/// If another change has raised it further already, this one takes a stamp from `next`, so that each change sets a
/// stamp of its own, and the stamps of a slot only rise.
pub(crate) fn raise(slot: &AtomicU64, mut stamp: Stamp, next: impl Fn() -> Stamp) -> Raised {
    // Whoever sees the stamp of a change also sees the clock that it was taken from, so that `next` is above it.
    let mut word = slot.load(Ordering::Acquire);
    loop {
        if word & !HOT >= stamp.0 {
            stamp = next();
        }
        let raised = word & HOT | (word & !HOT).max(stamp.0);
        match slot.compare_exchange_weak(word, raised, Ordering::SeqCst, Ordering::Acquire) {
            Ok(previous) => return Raised { previous, word: raised },
            Err(found) => word = found,
        }
    }
}

/// Sets a slot to a new stamp with the hot bit. Returns the new word, which differs even if the slot is hot already:
/// [`cool`] relies on it.
pub(crate) fn heat(slot: &AtomicU64, next: impl Fn() -> Stamp) -> u64 {
    let mut word = slot.load(Ordering::Acquire);
    loop {
        let hot = HOT | (word & !HOT).max(next().0);
        match slot.compare_exchange_weak(word, hot, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => return hot,
            Err(found) => word = found,
        }
    }
}

/// Sets a slot to a new stamp without the hot bit, and returns the new word. Returns `None` and changes nothing if
/// `is_held` says that somebody else needs the bit.
///
/// Whoever needs the bit announces that where `is_held` looks, and then calls [`heat`]. The word is loaded before
/// `is_held` looks: if an announcement comes too late for it, the word has changed and it looks again.
pub(crate) fn cool(slot: &AtomicU64, next: impl Fn() -> Stamp, mut is_held: impl FnMut() -> bool) -> Option<u64> {
    loop {
        let word = load(slot);
        if is_held() {
            return None;
        }
        let stamp = next();
        let cold = (word & !HOT).max(stamp.0);
        if slot.compare_exchange(word, cold, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return Some(cold);
        }
    }
}
