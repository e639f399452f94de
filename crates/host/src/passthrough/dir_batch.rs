//! Directory entries that the host returned in one call, in the buffer that it filled.
//!
//! A thread keeps the buffer of its last batch for the next one, so that reading a directory allocates nothing.

use std::{cell::Cell, mem, os::fd::AsFd};

use crate::{Errno, sysfd::dents};

/// Bytes of entries that the host returns in one call, about 800 entries.
pub(super) const BATCH_LEN: usize = 32 << 10;

/// Where the name begins in `struct linux_dirent64` (getdents64(2)): after the inode number, the cookie, the length of
/// the entry and the type.
const NAME_AT: usize = 8 + 8 + 2 + 1;

/// Entries are padded to a multiple of this, by as few bytes as possible: the NUL after the name is one of the last
/// ones.
const ALIGN: usize = 8;

/// The longest entry with a name of 255 bytes.
const USUAL_ENTRY_MAX: usize = (NAME_AT + 255 + 1).next_multiple_of(ALIGN);

thread_local! {
    /// The buffer of this thread's last batch, or empty.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Entries in the host's order.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// [`BATCH_LEN`] bytes, or none.
    bytes: Vec<u8>,
    /// Where the first remaining entry begins.
    first: usize,
    /// Where the entries end.
    end: usize,
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
    /// Bytes that it takes in its batch.
    len: usize,
}

/// What is needed to consume an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    len: usize,
    /// Where the stream continues.
    pub(super) off: u64,
}

impl Batch {
    /// Reads the next entries of `dir`; none at its end. Blocks on the host's file system.
    pub(super) fn read(dir: impl AsFd) -> Result<Self, Errno> {
        let mut batch = Self { bytes: SPARE.take(), ..Self::default() };
        if batch.bytes.is_empty() {
            batch.bytes = vec![0; BATCH_LEN];
        }
        batch.end = dents::read(dir, &mut batch.bytes)?;
        Ok(batch)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == self.end
    }

    /// Returns whether another entry would have fitted into the call that filled this batch.
    pub(super) fn had_room(&self) -> bool {
        self.end + USUAL_ENTRY_MAX <= BATCH_LEN
    }

    /// Returns the first entry.
    pub(super) fn first(&self) -> Option<Entry<'_>> {
        Entry::parse(self.bytes.get(self.first..self.end)?)
    }

    /// Removes the first entry, from which `step` is.
    pub(super) fn remove_first(&mut self, step: Step) {
        self.first += step.len;
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if !self.bytes.is_empty() {
            // A thread that ends has no use for it.
            let _ = SPARE.try_with(|spare| spare.set(mem::take(&mut self.bytes)));
        }
    }
}

impl<'a> Entry<'a> {
    /// Returns the entry at the beginning of `bytes`, or `None` if it is incomplete.
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (ino, rest) = bytes.split_first_chunk()?;
        let (off, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let len = usize::from(u16::from_ne_bytes(*len));
        let entry = bytes.get(..len)?;
        let name_end = name_end(entry.last_chunk()?, len)?;
        Some(Self {
            ino: u64::from_ne_bytes(*ino),
            off: u64::from_ne_bytes(*off),
            type_: *rest.first()?,
            name: entry.get(NAME_AT..name_end)?,
            len,
        })
    }

    /// Returns what is needed to consume it.
    pub(super) fn step(&self) -> Step {
        Step { len: self.len, off: self.off }
    }
}

/// Returns where the name ends in an entry of `len` bytes, of which `last` are the last: at the first NUL. It is among
/// these, since an entry is no longer than its name needs. What follows it has any value.
fn name_end(last: &[u8; ALIGN], len: usize) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; ALIGN]);
    // In the shortest entry, bytes before the name are among the last ones.
    let before_name = NAME_AT.saturating_sub(len.checked_sub(ALIGN)?);
    let word = u64::from_le_bytes(*last) | !u64::MAX.checked_shl(8 * before_name as u32)?;
    // The lowest bit that is set is that of the first byte which is zero.
    let zeros = word.wrapping_sub(ONES) & !word & (ONES << 7);
    (zeros != 0).then(|| len - ALIGN + zeros.trailing_zeros() as usize / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an entry as Linux writes it: bytes after the NUL keep what was in the buffer before.
    fn encoded(ino: u64, off: u64, type_: u8, name: &[u8], before: u8) -> Vec<u8> {
        let len = (NAME_AT + name.len() + 1).next_multiple_of(ALIGN);
        let len_bytes = (len as u16).to_ne_bytes();
        let mut entry = [&ino.to_ne_bytes()[..], &off.to_ne_bytes(), &len_bytes, &[type_], name, &[0]].concat();
        entry.resize(len, before);
        entry
    }

    #[test]
    fn entries_come_out_as_the_host_wrote_them() {
        let names: Vec<Vec<u8>> = (1..=40).chain([255, 765]).map(|len| vec![b'n'; len]).collect();
        for before in [0, 1, 0x80, 0xff, b'n'] {
            let mut batch = Batch { bytes: vec![before; BATCH_LEN], first: 0, end: 0 };
            for (at, name) in names.iter().enumerate() {
                let entry = encoded(at as u64, u64::MAX - at as u64, 8, name, before);
                batch.bytes[batch.end..][..entry.len()].copy_from_slice(&entry);
                batch.end += entry.len();
            }
            for (at, name) in names.iter().enumerate() {
                let entry = batch.first().unwrap();
                let is = (entry.ino, entry.off, entry.type_, entry.name);
                assert_eq!(is, (at as u64, u64::MAX - at as u64, 8, &name[..]), "bytes of {before} before");
                let step = entry.step();
                batch.remove_first(step);
            }
            assert!(batch.is_empty() && batch.first().is_none());
        }
    }

    #[test]
    fn what_is_no_entry_is_none() {
        let entry = encoded(1, 2, 8, b"name", 0);
        assert!((0..entry.len()).all(|len| Entry::parse(&entry[..len]).is_none()), "cut off");
        let mut endless = entry.clone();
        endless[NAME_AT..].fill(b'n');
        assert!(Entry::parse(&endless).is_none(), "a name without an end");
        for len in [0_u16, 1, 7, 8, 18, 25] {
            let mut wrong = entry.clone();
            wrong[16..18].copy_from_slice(&len.to_ne_bytes());
            assert!(Entry::parse(&wrong).is_none_or(|entry| entry.len >= NAME_AT), "an entry of {len} bytes");
        }
    }
}
