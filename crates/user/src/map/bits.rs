//! A set with one bit for each page of 2 MiB.

use std::ops::Range;

/// The number of 4 KiB pages in 2 MiB.
pub(super) const BITS: usize = 512;

/// A set of page numbers below [`BITS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bits([u64; BITS / 64]);

impl Bits {
    pub(super) fn contains(&self, place: usize) -> bool {
        self.0[place / 64] >> (place % 64) & 1 != 0
    }

    pub(super) fn set(&mut self, places: Range<usize>, is_set: bool) {
        for place in places {
            let bit = 1 << (place % 64);
            let word = &mut self.0[place / 64];
            *word = if is_set { *word | bit } else { *word & !bit };
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0 == [0; BITS / 64]
    }

    /// Returns the pages that are in this set and not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    /// Returns the pages that are in either set.
    pub(super) fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    /// Returns the runs of pages in this set that lie within a range.
    pub(super) fn runs(&self, places: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let mut at = places.start;
        std::iter::from_fn(move || {
            let start = (at..places.end).find(|&place| self.contains(place))?;
            let end = (start..places.end).find(|&place| !self.contains(place)).unwrap_or(places.end);
            at = end;
            Some(start..end)
        })
    }

    /// Returns the set of all pages.
    pub(super) fn full() -> Self {
        Self([u64::MAX; BITS / 64])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_places_that_are_set() {
        let mut bits = Bits::default();
        bits.set(3..70, true);
        bits.set(64..65, false);
        bits.set(511..512, true);
        assert_eq!(bits.runs(0..BITS).collect::<Vec<_>>(), [3..64, 65..70, 511..512]);
        assert_eq!(bits.runs(10..66).collect::<Vec<_>>(), [10..64, 65..66]);
        assert_eq!(Bits::full().without(&bits).runs(0..BITS).collect::<Vec<_>>(), [0..3, 64..65, 70..511]);
        assert!(bits.without(&bits).is_empty());
    }
}
