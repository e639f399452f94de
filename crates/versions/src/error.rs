//! Why memory is not a version table.

use crate::layout::{HEADER_LEN, LAYOUT, MAGIC, SLOTS_LOG2_MAX, SLOTS_LOG2_MIN};

/// Why memory is not a version table that this code can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The address is not aligned to words.
    #[error("the version table's address is not a multiple of 8")]
    Misaligned,
    /// There is not even a header.
    #[error("the version table has {len_bytes} bytes, fewer than its header of {HEADER_LEN} bytes")]
    NoHeader {
        /// The length in bytes.
        len_bytes: usize,
    },
    /// The first word differs.
    #[error("the version table begins with {found:#018x} instead of {MAGIC:#018x}")]
    Magic {
        /// The first word.
        found: u64,
    },
    /// Another layout than the one that is known.
    #[error("the version table has layout {found}, but only layout {LAYOUT} is supported")]
    Layout {
        /// The layout in the header.
        found: u32,
    },
    /// A number of slots outside the limits.
    #[error("the version table has 2^{found} slots; 2^{SLOTS_LOG2_MIN} to 2^{SLOTS_LOG2_MAX} are supported")]
    Slots {
        /// Logarithm of the number in the header.
        found: u32,
    },
    /// Fewer bytes than the header says.
    #[error("the version table has {len_bytes} bytes, but its header says {needed_bytes}")]
    Short {
        /// The length in bytes.
        len_bytes: usize,
        /// The length that the number of slots needs.
        needed_bytes: usize,
    },
}
