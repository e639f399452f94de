//! The contents of directories that a stream has read completely.

use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::{Judge, Validity};

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
    pub(crate) basis: Basis,
    len_bytes: usize,
    counted: Arc<AtomicUsize>,
}

/// The state of a directory for which a listing is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Basis {
    /// The directory's count of names that this guest has changed.
    pub(crate) names_changes: u64,
    pub(crate) version: Version,
}

/// The state of a directory as far as others change it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// Its modification time, in seconds and nanoseconds.
    Mtime(u64, u32),
    /// Its state for as long as this is valid.
    Until(Validity),
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

impl Listing {
    /// Returns whether the version table shows no change of the directory since it was read; false if its modification
    /// time decides instead.
    pub(crate) fn is_unchanged(&self, names_changes: u64, judge: &impl Judge) -> bool {
        let Version::Until(validity) = self.basis.version else { return false };
        self.basis.names_changes == names_changes && validity.is_valid(judge)
    }
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
    pub(crate) fn admit(&self, collector: Collector, basis: Basis) -> Option<Listing> {
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
