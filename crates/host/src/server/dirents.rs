//! Entries of READDIR and READDIRPLUS, gathered up to the size that the guest requested.

use std::{cell::Cell, mem};

use transom_wire::{
    attr::EntryOut,
    dirent::{Dirent, DirentPlus, padded_len},
};
use zerocopy::{Immutable, IntoBytes};

/// There is no room for another entry: the stream continues in the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

/// What the length of each entry is a multiple of (`FUSE_DIRENT_ALIGN`).
const ALIGN: usize = 8;

/// Memory for entries that a thread keeps for the next reply: what a driver reads at a time, or more.
const KEPT_MAX: usize = 64 << 10;

thread_local! {
    /// The memory of this thread's last reply, or empty.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Gathers entries for READDIR.
#[derive(Default)]
pub struct Dirents {
    /// The entries, followed by memory for more.
    bytes: Vec<u8>,
    len_bytes: usize,
    room_bytes: usize,
}

/// Gathers entries for READDIRPLUS.
#[derive(Default)]
pub struct DirentsPlus(pub(super) Dirents);

impl Dirents {
    /// Removes all entries and makes room for `room_bytes`.
    pub(super) fn reset(&mut self, room_bytes: usize) {
        if self.bytes.is_empty() {
            self.bytes = SPARE.take();
        }
        self.grow(room_bytes.min(KEPT_MAX));
        (self.len_bytes, self.room_bytes) = (0, room_bytes);
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len_bytes]
    }

    /// Returns true before the first entry.
    pub fn is_empty(&self) -> bool {
        self.len_bytes == 0
    }

    /// Appends an entry. `off` is the position of the stream after the entry, `type_` is as in `d_type`.
    pub fn push(&mut self, ino: u64, off: u64, type_: u32, name: &[u8]) -> Result<(), Full> {
        let dirent = dirent(ino, off, type_, name);
        self.append(&dirent, name)
    }

    fn check_room(&self, header_len: usize, name: &[u8]) -> Result<(), Full> {
        if self.len_bytes + padded_len(header_len, name.len()) > self.room_bytes { Err(Full) } else { Ok(()) }
    }

    fn append<T: IntoBytes + Immutable>(&mut self, header: &T, name: &[u8]) -> Result<(), Full> {
        self.check_room(size_of::<T>(), name)?;
        let (begin, end) = (self.len_bytes, self.len_bytes + padded_len(size_of::<T>(), name.len()));
        self.grow(end);
        let entry = &mut self.bytes[begin..end];
        // The padding, of which the name may cover a part.
        if let Some(last) = entry.last_chunk_mut::<ALIGN>() {
            *last = [0; ALIGN];
        }
        let (head, rest) = entry.split_at_mut(size_of::<T>());
        head.copy_from_slice(header.as_bytes());
        rest[..name.len()].copy_from_slice(name);
        self.len_bytes = end;
        Ok(())
    }

    /// Makes sure that there is memory for `len_bytes`.
    fn grow(&mut self, len_bytes: usize) {
        if self.bytes.len() < len_bytes {
            self.bytes.resize(len_bytes.max(2 * self.bytes.len()), 0);
        }
    }
}

impl Drop for Dirents {
    fn drop(&mut self) {
        if (1..=KEPT_MAX).contains(&self.bytes.len()) {
            // A thread that ends has no use for it.
            let _ = SPARE.try_with(|spare| spare.set(mem::take(&mut self.bytes)));
        }
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
        self.0.check_room(size_of::<DirentPlus>(), name)
    }

    /// Appends an entry together with the reply of LOOKUP; a nodeid of 0 means that nothing was looked up.
    pub fn push(&mut self, entry: &EntryOut, ino: u64, off: u64, type_: u32, name: &[u8]) -> Result<(), Full> {
        self.0.append(&DirentPlus { entry: *entry, dirent: dirent(ino, off, type_, name) }, name)
    }
}

fn dirent(ino: u64, off: u64, type_: u32, name: &[u8]) -> Dirent {
    Dirent { ino: ino.into(), off: off.into(), namelen: (name.len() as u32).into(), type_: type_.into() }
}
