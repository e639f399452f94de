//! Selects the files that the guest is told to map, if it leaves that to us.

/// Below this size a mapping costs more than the requests that it saves: it takes about as long as 20 READs.
const AUTO_SIZE_MIN_BYTES: u64 = 256 << 10;

/// Selects the files that get the flag (`FUSE_ATTR_DAX`), among those that can be mapped at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaxPolicy {
    /// All files.
    Always,
    /// No file.
    Never,
    /// Files with at least this many bytes when the guest first sees them.
    FromSize(u64),
}

impl DaxPolicy {
    /// Suits most workloads: small files are not worth a mapping.
    pub const AUTO: Self = Self::FromSize(AUTO_SIZE_MIN_BYTES);

    /// Returns whether a file of that size gets the flag.
    pub fn takes(self, size_bytes: u64) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::FromSize(least_bytes) => size_bytes >= least_bytes,
        }
    }
}
