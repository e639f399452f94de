//! Entries of READDIR and READDIRPLUS, gathered up to the size that the guest requested.

use transom_wire::{
    attr::EntryOut,
    dirent::{Dirent, DirentPlus, padded_len},
};
use zerocopy::IntoBytes;

/// There is no room for another entry: the stream continues in the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// What the length of each entry is a multiple of (`FUSE_DIRENT_ALIGN`).
const ALIGN: usize = 8;

/// Gathers entries for READDIR.
#[derive(Default)]
pub struct Dirents {
    bytes: Vec<u8>,
    room_bytes: usize,
}

/// Gathers entries for READDIRPLUS.
#[derive(Default)]
pub struct DirentsPlus(pub(super) Dirents);

impl Dirents {
    /// Removes all entries and makes room for `room_bytes`.
    pub(super) fn reset(&mut self, room_bytes: usize) {
        self.bytes.clear();
        self.bytes.reserve(room_bytes.min(64 << 10));
        self.room_bytes = room_bytes;
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns true before the first entry.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends an entry. `off` is the position of the stream after the entry, `type_` is as in `d_type`.
    pub fn push(&mut self, ino: u64, off: u64, type_: u32, name: &[u8]) -> Result<(), Full> {
        self.reserve(size_of::<Dirent>(), name)?;
        self.append(&[], ino, off, type_, name);
        Ok(())
    }

    fn reserve(&self, header_len: usize, name: &[u8]) -> Result<(), Full> {
        if self.bytes.len() + padded_len(header_len, name.len()) > self.room_bytes { Err(Full) } else { Ok(()) }
    }

    fn append(&mut self, before: &[u8], ino: u64, off: u64, type_: u32, name: &[u8]) {
        let dirent =
            Dirent { ino: ino.into(), off: off.into(), namelen: (name.len() as u32).into(), type_: type_.into() };
        self.bytes.extend_from_slice(before);
        self.bytes.extend_from_slice(dirent.as_bytes());
        self.bytes.extend_from_slice(name);
        let padding = self.bytes.len().next_multiple_of(ALIGN) - self.bytes.len();
        self.bytes.extend_from_slice(&[0; ALIGN][..padding]);
    }
}

impl DirentsPlus {
    pub(super) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// Returns true before the first entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that an entry with this name fits. Call it before looking the name up, since a lookup counts.
    pub fn has_room(&self, name: &[u8]) -> Result<(), Full> {
        self.0.reserve(size_of::<DirentPlus>(), name)
    }

    /// Appends an entry together with the reply of LOOKUP; a nodeid of 0 means that nothing was looked up.
    pub fn push(&mut self, entry: &EntryOut, ino: u64, off: u64, type_: u32, name: &[u8]) -> Result<(), Full> {
        self.has_room(name)?;
        self.0.append(entry.as_bytes(), ino, off, type_, name);
        Ok(())
    }
}
