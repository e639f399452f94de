//! The guest's caches of a share: names, attributes, symbolic links, directories, data.
//!
//! [`validity`] alone decides how long something may be used, by a deadline or by the table of [`versions`]; each kind
//! of data has its own file. [`CacheOptions`]
//! bounds all memory. Nothing here sends a request: [`volume`](crate::volume) fills the caches and invalidates them.

pub(crate) mod attributes;
pub(crate) mod data;
pub(crate) mod directories;
pub(crate) mod names;
pub(crate) mod sequence;
mod validity;
pub(crate) mod versions;

pub(crate) use validity::Judge;
pub use validity::{CacheMode, Validity};
pub use versions::{Region, TableError, TableMemory, TableWord, Versions};

/// How much is cached, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// How long cached data stays valid.
    pub mode: CacheMode,
    /// Maximum number of names, including absent ones. Each keeps an inode referenced.
    pub names_max: usize,
    /// Maximum memory for the contents of files, in bytes; 0 disables the data cache. At most half of a device's own
    /// pool is used.
    pub data_max_bytes: usize,
    /// Maximum time that data waits to be written, in nanoseconds, if the platform has threads. 0 sets no limit: data
    /// waits until something else has it written.
    pub dirty_age_ns: u64,
    /// Maximum amount of data that waits to be written, in bytes, if INIT negotiated WRITEBACK_CACHE.
    pub dirty_max_bytes: usize,
    /// Maximum memory for the contents of directories, in bytes.
    pub directories_max_bytes: usize,
}

impl CacheOptions {
    /// Returns the default, reduced for a system with this much memory: contents of files take at most an eighth of it,
    /// a quarter of that dirty; contents of directories a 64th; and there is a name for every 8 KiB.
    pub fn for_memory(bytes: usize) -> Self {
        let most = Self::default();
        Self {
            names_max: most.names_max.min(bytes / 8192),
            data_max_bytes: most.data_max_bytes.min(bytes / 8),
            dirty_max_bytes: most.dirty_max_bytes.min(bytes / 32),
            directories_max_bytes: most.directories_max_bytes.min(bytes / 64),
            ..most
        }
    }
}

impl Default for CacheOptions {
    /// Validity as the server says, up to 65536 names and 64 MiB of contents, of which 16 MiB may be dirty.
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
