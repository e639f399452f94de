//! What a guest keeps of a share so that it need not ask again: names, attributes, symbolic links, directories, data.
//!
//! How long something holds is one question, answered by [`validity`]; each kind of thing has its file. All memory is
//! bounded by [`CacheOptions`]. Nothing here sends a request: what is kept was given by [`volume`](crate::volume),
//! which also says what no longer holds.

pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod directories;
pub(crate) mod names;
pub(crate) mod sequence;
mod validity;

pub use validity::{CacheMode, Validity};

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// For how long.
    pub mode: CacheMode,
    /// The most names, absent ones included. Each keeps an inode referenced.
    pub names_max: usize,
    /// The most memory for files' contents, in bytes; 0 keeps none. At most half of a device's own pool is used.
    pub data_max_bytes: usize,
    /// How long contents wait to be written at most, in nanoseconds, where the platform has threads; 0 for until
    /// something else has them written.
    pub dirty_age_ns: u64,
    /// The most of it that waits to be written, in bytes, where INIT settled WRITEBACK_CACHE.
    pub dirty_max_bytes: usize,
    /// The most memory for the contents of directories, in bytes.
    pub directories_max_bytes: usize,
}

impl Default for CacheOptions {
    /// As long as the server says, up to 65536 names and 64 MiB of contents, of which 16 MiB are dirty.
    fn default() -> Self {
        Self {
            mode: CacheMode::Auto,
            names_max: 1 << 16,
            data_max_bytes: 64 << 20,
            directories_max_bytes: 4 << 20,
            dirty_age_ns: 5_000_000_000,
            dirty_max_bytes: 16 << 20,
        }
    }
}
