//! What a guest knows of the changes that it has made itself.
//!
//! A guest's own change raises the slot, as any change does, so that what the guest has cached of the inode would be
//! fetched once more. If the reply says from which stamp to which the slot was raised, the guest can tell its own
//! changes from those of others: [`OwnChanges`] joins them to one range of stamps. What was fetched within the range is
//! valid while the slot stands at the range's end, because every stamp between is of a change whose effect the guest
//! knows.

use crate::{
    Stamp,
    atomic::{AtomicU64, Ordering},
    layout::HOT,
};

/// One raise of a slot: its word before it, and its word after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raised {
    /// Before.
    pub previous: u64,
    /// After: higher, except in the hot bit.
    pub word: u64,
}

impl Raised {
    /// Returns whether a guest may join it to a range: the slot was not hot, and rose.
    pub const fn is_own_change(self) -> bool {
        (self.previous | self.word) & HOT == 0 && self.previous < self.word
    }
}

/// A range of stamps of one slot, all of which are of changes by this guest, for one inode of the slot.
///
/// One thread at a time may [`Self::join`]; any number may ask at the same time.
#[derive(Debug, Default)]
pub struct OwnChanges {
    /// The stamp before the first of the changes.
    begin: AtomicU64,
    /// The stamp of the last one; 0 without any, or while the range changes. If a value comes back with another
    /// beginning, the range was extended downwards, and both are true.
    end: AtomicU64,
}

impl OwnChanges {
    /// Adds a change by this guest. Call it *after* everything cached of the inode shows its effect.
    ///
    /// If it does not meet the range at one of its ends, another guest's change lies between, or the reply to one of
    /// this guest's has not come yet: then the later of both ranges stays, and what was fetched before it is invalid.
    pub fn join(&self, raised: Raised) {
        if !raised.is_own_change() {
            return;
        }
        let Raised { previous, word } = raised;
        let (begin, end) = (self.begin.load(Ordering::Relaxed), self.end.load(Ordering::Relaxed));
        if word < begin || word == end {
            return;
        }
        let (begin, end) = if end == 0 || previous > end {
            (previous, word)
        } else if previous == end {
            (begin, word)
        } else if word == begin {
            (previous, end)
        } else {
            // No slot rises twice from one stamp.
            (0, 0)
        };
        // Whoever sees the new beginning sees that the old end is gone, and whoever sees the new end sees the new
        // beginning.
        self.end.store(0, Ordering::Relaxed);
        self.begin.store(begin, Ordering::Release);
        self.end.store(end, Ordering::Release);
    }

    /// Returns whether a change follows the range without a gap, or there is no range.
    pub fn is_followed_by(&self, raised: Raised) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        end == 0 || raised.previous <= end
    }

    /// Returns whether a slot with this word has been raised by this guest alone since the clock was `fetched`.
    #[inline]
    pub(crate) fn explain(&self, word: u64, fetched: Stamp) -> bool {
        let end = self.end.load(Ordering::Acquire);
        if end != word || end == 0 {
            return false;
        }
        let begin = self.begin.load(Ordering::Acquire);
        begin <= fetched.0 && self.end.load(Ordering::Relaxed) == end
    }
}

#[cfg(all(test, not(feature = "loom")))]
#[path = "own_test.rs"]
mod tests;
