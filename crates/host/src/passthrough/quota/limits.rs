//! What a guest may add to a share, as options say it.

/// What a guest may add to a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaLimits {
    /// In bytes.
    pub bytes: u64,
    /// Files, directories and all else that has an inode number; `None` for any number.
    pub files: Option<u64>,
}
