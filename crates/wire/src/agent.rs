//! The channel between a daemon and the agent in a Linux guest, which replays changes of the host in the guest.
//!
//! The agent calls ioctl(2) with [`EXCHANGE`] on the share's root directory: an argument of [`EXCHANGE_LEN`] bytes that
//! begins with a [`Hello`], and is replaced by an [`Announcement`] and the [`Change`]s that it counts. Each exchange
//! acknowledges the changes of the one before. While the agent makes the system calls of a change, its requests carry
//! [`AGENT_GID`]; the daemon never performs a change on behalf of that group.
//!
//! This is our own protocol; FUSE does not know it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use crate::{NodeId, limits::NAME_LEN_MAX};

/// Bytes of the argument of an exchange: one page, which Linux copies in both directions.
pub const EXCHANGE_LEN: usize = 4096;

/// The request number: `_IOWR(0xf5, 0x7a, [u8; 4096])`. Linux takes the size of the argument from it.
pub const EXCHANGE: u32 = 3 << 30 | (EXCHANGE_LEN as u32) << 16 | 0xf5 << 8 | 0x7a;

/// The version of this protocol. A daemon refuses any other (EPROTO).
pub const VERSION: u32 = 2;

/// The group of the agent's requests ("tran"). Assuming it takes CAP_SETGID in the guest, and nobody's files have it.
pub const AGENT_GID: u32 = 0x7472_616e;

/// The type of a Linux file handle that holds a 64-bit inode number and a generation, which is how `fs/fuse` encodes a
/// nodeid (`FILEID_INO64_GEN`).
pub const HANDLE_TYPE: i32 = 0x81;

/// What the agent sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    /// [`VERSION`].
    pub version: U32,
    /// Changes of the announcement before that were replayed.
    pub replayed: U32,
    /// Changes of the announcement before that were not, because the guest does not know the directory or uses the
    /// name.
    pub skipped: U32,
    /// [`WAKE`], or 0.
    pub flags: U32,
}
const _: () = assert!(size_of::<Hello>() == 16);

/// Flag of a [`Hello`] through any handle: an exchange that waits is answered at once, and this one says nothing. An
/// agent that is to end cannot be killed while its exchange waits.
pub const WAKE: u32 = 1;

/// The head of what the daemon sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Announcement {
    /// [`VERSION`].
    pub version: U32,
    /// Number of changes that follow, 0 if nothing happened.
    pub count: U32,
    /// 1 if changes were lost before these: the guest has to drop every name that it does not use.
    pub is_overflow: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<Announcement>() == 16);

/// The head of a change. The name and the new name follow, then zeros up to a multiple of 8 bytes.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct ChangeHead {
    parent: U64,
    new_parent: U64,
    kind: u8,
    file_type: u8,
    name_len: u8,
    new_name_len: u8,
    padding: U32,
}
const _: () = assert!(size_of::<ChangeHead>() == 24);

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// It was created.
    Created = 1,
    /// It was removed.
    Removed = 2,
    /// It was renamed, replacing the new name if that existed.
    Renamed = 3,
    /// It and the new name were exchanged.
    Exchanged = 4,
    /// The file's data or size changed; it may still be open.
    Modified = 5,
    /// The file's data or size changed, and the program that wrote it has closed it.
    Written = 6,
    /// Mode, owner, times, extended attributes or the number of links changed.
    Attributes = 7,
    /// A program that had the file open for writing has closed it.
    Closed = 8,
    /// What is cached of the file itself may be stale, and nobody is to be told. A type other than that of a regular
    /// file says that only attributes may be.
    Stale = 9,
}

/// One change of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change<'a> {
    /// What happened.
    pub kind: Kind,
    /// The type of the file as in `d_type` of readdir(3), 0 if unknown.
    pub file_type: u8,
    /// The directory; with an empty name, the file or directory itself.
    pub parent: NodeId,
    /// The name in it; empty if it is not known, or for a directory itself.
    pub name: &'a [u8],
    /// The directory of the new name, for renames and exchanges. For a removal the file itself if it has other names.
    /// For changes of data and attributes the file itself, in case that the name has become another's. 0 if it is not
    /// known.
    pub new_parent: NodeId,
    /// The new name, for renames and exchanges.
    pub new_name: &'a [u8],
}

/// Why an announcement cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Created,
        Self::Removed,
        Self::Renamed,
        Self::Exchanged,
        Self::Modified,
        Self::Written,
        Self::Attributes,
        Self::Closed,
        Self::Stale,
    ];

    fn from_u8(kind: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| *known as u8 == kind)
    }
}

/// Writes an announcement into the argument of an exchange.
#[derive(Debug)]
pub struct Writer<'a> {
    to: &'a mut [u8; EXCHANGE_LEN],
    used: usize,
    count: u32,
}

impl<'a> Writer<'a> {
    /// Begins an announcement without changes.
    pub fn new(to: &'a mut [u8; EXCHANGE_LEN]) -> Self {
        to.fill(0);
        Self { to, used: size_of::<Announcement>(), count: 0 }
    }

    /// Appends `change` and returns true, or returns false if it does not fit. An empty announcement has room for any.
    pub fn push(&mut self, change: &Change<'_>) -> bool {
        let Some(len) = put_change(&mut self.to[self.used..], change) else { return false };
        self.used += len;
        self.count += 1;
        true
    }

    /// Returns the bytes of the announcement so far, its head included.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Writes the head; returns the number of changes.
    pub fn finish(self, is_overflow: bool) -> u32 {
        let head = Announcement {
            version: VERSION.into(),
            count: self.count.into(),
            is_overflow: u32::from(is_overflow).into(),
            padding: 0.into(),
        };
        self.to[..size_of::<Announcement>()].copy_from_slice(head.as_bytes());
        self.count
    }
}

/// Writes `change` to the beginning of `to`, which is zeroed. Returns its length, or `None` if it does not fit.
pub(crate) fn put_change(to: &mut [u8], change: &Change<'_>) -> Option<usize> {
    let head = ChangeHead {
        parent: change.parent.into(),
        new_parent: change.new_parent.into(),
        kind: change.kind as u8,
        file_type: change.file_type,
        name_len: u8::try_from(change.name.len()).ok()?,
        new_name_len: u8::try_from(change.new_name.len()).ok()?,
        padding: 0.into(),
    };
    let to = to.get_mut(..padded_len(change.name.len() + change.new_name.len()))?;
    let parts: [&[u8]; 3] = [head.as_bytes(), change.name, change.new_name];
    let mut at = 0;
    for part in parts {
        to[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    Some(to.len())
}

/// Returns the length of a change with names of `names_len` bytes in all.
pub(crate) const fn padded_len(names_len: usize) -> usize {
    (size_of::<ChangeHead>() + names_len).next_multiple_of(8)
}

const _: () = assert!(size_of::<Announcement>() + size_of::<ChangeHead>() + 2 * NAME_LEN_MAX + 8 <= EXCHANGE_LEN);

/// The changes of an announcement, in the order in which they happened.
#[derive(Debug, Clone)]
pub struct Changes<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Changes<'a> {
    /// Reads the head of an announcement. Errors: it has another version.
    pub fn parse(argument: &'a [u8; EXCHANGE_LEN]) -> Result<(Announcement, Self), Malformed> {
        let (head, rest) = Announcement::read_from_prefix(argument).map_err(|_| Malformed)?;
        if head.version.get() != VERSION {
            return Err(Malformed);
        }
        Ok((head, Self { rest, left: head.count.get() }))
    }
}

impl<'a> Iterator for Changes<'a> {
    type Item = Result<Change<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let change = take_change(&mut self.rest);
        if change.is_err() {
            self.left = 0;
        }
        Some(change)
    }
}

pub(crate) fn take_change<'a>(from: &mut &'a [u8]) -> Result<Change<'a>, Malformed> {
    let (head, _) = ChangeHead::read_from_prefix(from).map_err(|_| Malformed)?;
    let (name_len, new_name_len) = (usize::from(head.name_len), usize::from(head.new_name_len));
    let (bytes, rest) = from.split_at_checked(padded_len(name_len + new_name_len)).ok_or(Malformed)?;
    *from = rest;
    let names = &bytes[size_of::<ChangeHead>()..];
    Ok(Change {
        kind: Kind::from_u8(head.kind).ok_or(Malformed)?,
        file_type: head.file_type,
        parent: head.parent.into(),
        name: &names[..name_len],
        new_parent: head.new_parent.into(),
        new_name: &names[name_len..name_len + new_name_len],
    })
}

#[cfg(test)]
#[path = "agent_test.rs"]
mod agent_test;
