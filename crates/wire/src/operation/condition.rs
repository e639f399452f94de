//! Conditions on the flags in the arguments, for properties of some requests of an operation only.

/// A condition on the arguments of one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// For no request.
    Never,
    /// For every request.
    Always,
    /// If any bit of `mask` is set in the word at offset `at`.
    AnyOf {
        /// Offset in the arguments, in bytes.
        at: usize,
        /// The bits.
        mask: u32,
    },
    /// If any bit of `mask` is set in the word at offset `at`, unless the whole word is `except`.
    AnyOfExcept {
        /// Offset in the arguments, in bytes.
        at: usize,
        /// The bits.
        mask: u32,
        /// The word for which the condition does not hold.
        except: u32,
    },
    /// If no bit of `mask` is set in the word at offset `at`.
    NoneOf {
        /// Offset in the arguments, in bytes.
        at: usize,
        /// The bits.
        mask: u32,
    },
    /// If either of the two holds.
    Either(&'static [Self; 2]),
}

impl Condition {
    /// Returns whether the condition holds for `args`, the bytes that follow a request's header.
    ///
    /// A word that lies beyond their end counts as 0.
    pub fn holds(&self, args: &[u8]) -> bool {
        match *self {
            Self::Never => false,
            Self::Always => true,
            Self::AnyOf { at, mask } => word(args, at) & mask != 0,
            Self::AnyOfExcept { at, mask, except } => word(args, at) & mask != 0 && word(args, at) != except,
            Self::NoneOf { at, mask } => word(args, at) & mask == 0,
            Self::Either([one, other]) => one.holds(args) || other.holds(args),
        }
    }
}

/// Returns the word at offset `at`, or 0 if it lies beyond the end.
pub(super) fn word(args: &[u8], at: usize) -> u32 {
    let bytes = args.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn a_condition_looks_at_its_word_and_takes_missing_ones_for_zero() {
        let (any, none) = (Condition::AnyOf { at: 4, mask: 6 }, Condition::NoneOf { at: 4, mask: 6 });
        for (word, is_set) in [(0, false), (1, false), (2, true), (4, true), (9, false), (0xffff_ffff, true)] {
            let args = [[0xff; 4], u32::to_le_bytes(word)].concat();
            assert_eq!((any.holds(&args), none.holds(&args)), (is_set, !is_set), "{word:#x}");
        }
        assert!(!any.holds(&[0xff; 7]) && none.holds(&[0xff; 7]));
        assert!(!any.holds(&[]) && none.holds(&[]));
    }

    #[test]
    fn one_word_can_be_excepted() {
        let condition = Condition::AnyOfExcept { at: 0, mask: 6, except: 5 };
        for (word, holds) in [(0, false), (1, false), (2, true), (4, true), (5, false), (7, true), (13, true)] {
            assert_eq!(condition.holds(&u32::to_le_bytes(word)), holds, "{word}");
        }
    }

    #[test]
    fn either_of_two_is_enough() {
        const ONE: Condition = Condition::AnyOf { at: 0, mask: 1 };
        const OTHER: Condition = Condition::NoneOf { at: 0, mask: 2 };
        let either = Condition::Either(&[ONE, OTHER]);
        assert_eq!([0, 1, 2, 3].map(|word: u32| either.holds(&word.to_le_bytes())), [true, true, false, true]);
        assert!(Condition::Always.holds(&[]) && !Condition::Never.holds(&[]));
    }
}
