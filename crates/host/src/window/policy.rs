//! Which files the guest is told to map, where it leaves that to us.

/// Below it a mapping costs more than the requests that it saves: it takes about as long as 20 READs.
const AUTO_SIZE_MIN_BYTES: u64 = 256 << 10;

/// The files that get the flag (`FUSE_ATTR_DAX`), of those that can be mapped at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaxPolicy {
    /// All of them.
    Always,
    /// None.
    Never,
    /// Those of at least so many bytes when the guest gets to know them.
    FromSize(u64),
}

impl DaxPolicy {
    /// What suits most: small files are not worth a mapping.
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
