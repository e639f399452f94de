//! Directory entries that the host returned in one call, packed one after the other.

use rustix::fs::{FileType, RawDirEntry};

/// Bytes before each name: inode number, cookie, length of the name, type.
const HEAD_LEN: usize = 8 + 8 + 2 + 1;

/// Entries in the host's order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where the first remaining entry begins.
    first: usize,
}

/// One entry as the host returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) ino: u64,
    /// Where the stream continues after it.
    pub(super) off: u64,
    /// As in `d_type`.
    pub(super) type_: u8,
    pub(super) name: &'a [u8],
}

impl Batch {
    /// Creates a batch for the entries of one call, whose buffer had `len` bytes: none takes more here than there.
    pub(super) fn with_room(len: usize) -> Self {
        Self { bytes: Vec::with_capacity(len), first: 0 }
    }

    /// Adds an entry at the end.
    pub(super) fn push(&mut self, entry: &RawDirEntry<'_>) {
        let name = entry.file_name().to_bytes();
        self.push_entry(Entry {
            ino: entry.ino(),
            off: entry.next_entry_cookie(),
            type_: raw_type(entry.file_type()),
            name,
        });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == self.bytes.len()
    }

    /// Returns the first entry.
    pub(super) fn first(&self) -> Option<Entry<'_>> {
        let (ino, rest) = self.bytes[self.first..].split_first_chunk()?;
        let (off, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (&type_, rest) = rest.split_first()?;
        let name = rest.get(..usize::from(u16::from_ne_bytes(*len)))?;
        Some(Entry { ino: u64::from_ne_bytes(*ino), off: u64::from_ne_bytes(*off), type_, name })
    }

    /// Removes the first entry and returns where the stream continues after it.
    pub(super) fn remove_first(&mut self) -> Option<u64> {
        let Entry { off, name, .. } = self.first()?;
        self.first += HEAD_LEN + name.len();
        Some(off)
    }

    /// Frees unused memory and returns the number of bytes kept.
    pub(super) fn shrink(&mut self) -> usize {
        self.bytes.drain(..std::mem::take(&mut self.first));
        self.bytes.shrink_to_fit();
        self.bytes.capacity()
    }

    fn push_entry(&mut self, entry: Entry<'_>) {
        // On every file system, a name has at most 255 characters of at most 6 bytes.
        let Ok(len) = u16::try_from(entry.name.len()) else { return };
        self.bytes.extend_from_slice(&entry.ino.to_ne_bytes());
        self.bytes.extend_from_slice(&entry.off.to_ne_bytes());
        self.bytes.extend_from_slice(&len.to_ne_bytes());
        self.bytes.push(entry.type_);
        self.bytes.extend_from_slice(entry.name);
    }
}

fn raw_type(file_type: FileType) -> u8 {
    // `d_type` is the type bits of a mode, shifted.
    match file_type {
        FileType::Unknown => libc::DT_UNKNOWN,
        known => (known.as_raw_mode() >> 12) as u8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in_also_after_shrinking() {
        let names: Vec<Vec<u8>> = [1, 255, 0, 765].map(|len| vec![b'n'; len]).into();
        let mut batch = Batch::default();
        let entry = |at: usize| Entry { ino: at as u64, off: u64::MAX - at as u64, type_: 8, name: &names[at] };
        (0..names.len()).for_each(|at| batch.push_entry(entry(at)));
        for at in 0..names.len() {
            assert_eq!(batch.first(), Some(entry(at)));
            let left: usize = names[at..].iter().map(|name| HEAD_LEN + name.len()).sum();
            assert_eq!(batch.shrink(), left);
            assert_eq!(batch.remove_first(), Some(entry(at).off));
        }
        assert!(batch.is_empty() && batch.first().is_none() && batch.remove_first().is_none());
    }
}
