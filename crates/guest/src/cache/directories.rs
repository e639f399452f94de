//! The contents of directories that a stream has read completely.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Maximum size of one listing in bytes: some 10,000 names. A longer directory is read again each time.
const LISTING_LEN_MAX: usize = 1 << 20;

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The inode number.
    pub ino: u64,
    /// The position after this entry, for [`DirectoryStream::seek`](crate::volume::DirectoryStream::seek).
    pub cookie: u64,
    /// The file type as in `d_type`; 0 if the server does not say.
    pub file_type: u32,
    /// 1 to 1024 bytes without `/` and NUL. May be `.` or `..`. No other operation accepts more than 255 bytes.
    pub name: Vec<u8>,
}

/// All entries of a directory, in the order of the stream.
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// The directory's count of changed names, and its modification time in seconds and nanoseconds.
    pub(crate) basis: (u64, (u64, u32)),
    len_bytes: usize,
    counted: Arc<AtomicUsize>,
}

/// Collects a listing while a directory is read from beginning to end.
pub(crate) struct Collector {
    pub(crate) entries: Vec<Entry>,
    len_bytes: usize,
}

/// Limits the memory of all listings of a volume.
pub(crate) struct Listings {
    used_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), len_bytes: 0 }
    }

    /// Adds an entry. Returns false if the listing has become too long.
    pub(crate) fn push(&mut self, entry: &Entry) -> bool {
        self.len_bytes += size_of::<Entry>() + entry.name.len();
        self.entries.push(entry.clone());
        self.len_bytes <= LISTING_LEN_MAX
    }
}

impl Listings {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { used_bytes: Arc::default(), max_bytes }
    }

    /// Returns a finished listing if there is room for it.
    pub(crate) fn admit(&self, collector: Collector, basis: (u64, (u64, u32))) -> Option<Listing> {
        let Collector { entries, len_bytes } = collector;
        let before = self.used_bytes.fetch_add(len_bytes, Ordering::Relaxed);
        let listing = Listing { entries, basis, len_bytes, counted: Arc::clone(&self.used_bytes) };
        (before + len_bytes <= self.max_bytes).then_some(listing)
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.counted.fetch_sub(self.len_bytes, Ordering::Relaxed);
    }
}
