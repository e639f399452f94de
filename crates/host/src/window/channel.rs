//! The channel for map and unmap requests to the front end (vhost-user, "VHOST_USER_BACKEND_SHMEM_MAP" and "_UNMAP").

use std::os::fd::BorrowedFd;

/// One mapping to request from the front end.
#[derive(Debug, Clone, Copy)]
pub struct Mapping<'a> {
    /// The file to map.
    pub file: BorrowedFd<'a>,
    /// Offset in the file, in bytes.
    pub file_offset: u64,
    /// Offset in the window, in bytes.
    pub window_offset: u64,
    /// In bytes.
    pub len: u64,
    /// Whether the guest may write through it.
    pub is_writable: bool,
}

/// Why a request to the front end failed.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// It answered with an error.
    #[error("the front end refused: {0}")]
    Refused(String),
    /// It can no longer be reached.
    #[error("the front end is gone: {0}")]
    Lost(String),
}

/// A connection to the front end. Each method blocks until the front end has answered.
pub trait Channel: Send + Sync {
    /// Maps an unmapped range.
    fn map(&self, mapping: &Mapping<'_>) -> Result<(), ChannelError>;

    /// Unmaps exactly what one [`Channel::map`] has mapped.
    fn unmap(&self, window_offset: u64, len: u64) -> Result<(), ChannelError>;

    /// Returns once the guest sees all mappings that were answered before. The window takes every error for a lost
    /// channel, since it is then unknown whether the guest sees them.
    fn barrier(&self) -> Result<(), ChannelError>;
}
