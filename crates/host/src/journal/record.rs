//! One change of a session, as bytes.
//!
//! A record is a header (length, kind, flag, length of the name), words, a name and further bytes, padded to 8 bytes.
//! Writer and reader are the same executable, so there is no version.

use smallvec::SmallVec;

use crate::sysfd::{FileHandle, MountId};

/// The bytes of a record.
pub(super) type Encoded = SmallVec<[u8; 512]>;

/// Length of the header.
const HEADER_LEN: usize = 8;

/// A change. Numbers of inodes are the guest's. Changes with a `unique` are undone if its request is served again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A session begins with these flags. Nothing of an earlier one is left.
    Begin { flags: u64 },
    /// The session ends.
    End,
    /// `count` lookups of an inode, which was found as `name` in `parent`.
    Look { unique: u64, nodeid: u64, count: u64, parent: u64, name: &'a [u8], handle: Option<FileHandle> },
    /// `count` lookups are dropped.
    Forget { unique: u64, nodeid: u64, count: u64 },
    /// A name has moved, or two were exchanged.
    Rename { parent: u64, name: &'a [u8], new_parent: u64, new_name: &'a [u8], is_exchange: bool },
    /// A name was removed.
    Remove { parent: u64, name: &'a [u8] },
    /// A file or directory is open under the handle `fh`.
    Open { unique: u64, nodeid: u64, fh: u64, fd: u64, is_directory: bool },
    /// A handle is about to be closed.
    Close { fh: u64 },
    /// An owner has locked a range through `fh`; its locks are held by the descriptor `fd`.
    Lock { nodeid: u64, owner: u64, fh: u64, fd: u64, pid: u64, start: u64, end: u64, is_exclusive: bool },
    /// An owner has unlocked a range.
    Unlock { nodeid: u64, owner: u64, start: u64, end: u64 },
    /// All locks of an owner on an inode are about to end.
    EndOwner { nodeid: u64, owner: u64 },
    /// What a request that must not be done twice is about to do.
    Intent { unique: u64, bytes: &'a [u8] },
    /// The greatest numbers that the guest was given.
    Floor { nodeid: u64, fh: u64 },
}

/// Writes one record.
fn put(kind: u8, flag: bool, words: &[u64], name: &[u8], rest: &[u8]) -> Encoded {
    let len = (HEADER_LEN + 8 * words.len() + name.len() + rest.len()).next_multiple_of(8);
    let mut bytes = Encoded::with_capacity(len);
    let padding = len - HEADER_LEN - 8 * words.len() - name.len() - rest.len();
    bytes.extend_from_slice(&(len as u32).to_le_bytes());
    bytes.extend_from_slice(&[kind | u8::from(flag) << 7, padding as u8]);
    bytes.extend_from_slice(&(name.len() as u16).to_le_bytes());
    words.iter().for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
    bytes.extend_from_slice(name);
    bytes.extend_from_slice(rest);
    bytes.resize(len, 0);
    bytes
}

impl<'a> Record<'a> {
    pub(super) fn encode(&self) -> Encoded {
        match self {
            Self::Begin { flags } => put(1, false, &[*flags], &[], &[]),
            Self::End => put(2, false, &[], &[], &[]),
            Self::Look { unique, nodeid, count, parent, name, handle } => {
                let (mount, type_) = handle.as_ref().map_or((0, 0), |handle| (handle.mount().0, handle.type_()));
                let words = [*unique, *nodeid, *count, *parent, mount, u64::from(type_.cast_unsigned())];
                put(3, handle.is_some(), &words, name, handle.as_ref().map_or(&[], FileHandle::bytes))
            }
            Self::Forget { unique, nodeid, count } => put(4, false, &[*unique, *nodeid, *count], &[], &[]),
            Self::Rename { parent, name, new_parent, new_name, is_exchange } => {
                put(5, *is_exchange, &[*parent, *new_parent], name, new_name)
            }
            Self::Remove { parent, name } => put(6, false, &[*parent], name, &[]),
            Self::Open { unique, nodeid, fh, fd, is_directory } => {
                put(7, *is_directory, &[*unique, *nodeid, *fh, *fd], &[], &[])
            }
            Self::Close { fh } => put(8, false, &[*fh], &[], &[]),
            Self::Lock { nodeid, owner, fh, fd, pid, start, end, is_exclusive } => {
                put(9, *is_exclusive, &[*nodeid, *owner, *fh, *fd, *pid, *start, *end], &[], &[])
            }
            Self::Unlock { nodeid, owner, start, end } => put(10, false, &[*nodeid, *owner, *start, *end], &[], &[]),
            Self::EndOwner { nodeid, owner } => put(11, false, &[*nodeid, *owner], &[], &[]),
            Self::Intent { unique, bytes } => put(12, false, &[*unique], &[], bytes),
            Self::Floor { nodeid, fh } => put(13, false, &[*nodeid, *fh], &[], &[]),
        }
    }

    /// Reads the first record of `bytes`; returns it with the rest, or `None` at the end.
    pub(super) fn decode(bytes: &'a [u8]) -> Option<(Self, &'a [u8], &'a [u8])> {
        let len = u32::from_le_bytes(*bytes.first_chunk()?) as usize;
        let (whole, following) = bytes.split_at_checked(len)?;
        let [_, _, _, _, kind, padding, name_low, name_high] = *whole.first_chunk()?;
        let body = whole.get(HEADER_LEN..len.checked_sub(padding.into())?)?;
        let name_len = usize::from(u16::from_le_bytes([name_low, name_high]));
        let record = Parts { body, name_len, flag: kind & 0x80 != 0 }.record(kind & 0x7f)?;
        Some((record, whole, following))
    }

    /// Returns the request whose repetition undoes this change, if there is one.
    pub(super) fn unique(&self) -> Option<u64> {
        match *self {
            Self::Look { unique, .. }
            | Self::Forget { unique, .. }
            | Self::Open { unique, .. }
            | Self::Intent { unique, .. } => Some(unique),
            _ => None,
        }
    }
}

struct Parts<'a> {
    body: &'a [u8],
    name_len: usize,
    flag: bool,
}

impl<'a> Parts<'a> {
    fn split<const N: usize>(&self) -> Option<([u64; N], &'a [u8], &'a [u8])> {
        let (words, rest) = self.body.split_at_checked(8 * N)?;
        let (name, rest) = rest.split_at_checked(self.name_len)?;
        let mut numbers = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        Some((std::array::from_fn(|_| numbers.next().unwrap_or(0)), name, rest))
    }

    fn words<const N: usize>(&self) -> Option<[u64; N]> {
        Some(self.split()?.0)
    }

    fn record(&self, kind: u8) -> Option<Record<'a>> {
        Some(match kind {
            1 => {
                let [flags] = self.words()?;
                Record::Begin { flags }
            }
            2 => Record::End,
            3 => {
                let ([unique, nodeid, count, parent, mount, type_], name, bytes) = self.split()?;
                let handle = FileHandle::from_parts(MountId(mount), (type_ as u32).cast_signed(), bytes);
                Record::Look { unique, nodeid, count, parent, name, handle: handle.filter(|_| self.flag) }
            }
            4 => {
                let [unique, nodeid, count] = self.words()?;
                Record::Forget { unique, nodeid, count }
            }
            5 => {
                let ([parent, new_parent], name, new_name) = self.split()?;
                Record::Rename { parent, name, new_parent, new_name, is_exchange: self.flag }
            }
            6 => {
                let ([parent], name, _) = self.split()?;
                Record::Remove { parent, name }
            }
            7 => {
                let [unique, nodeid, fh, fd] = self.words()?;
                Record::Open { unique, nodeid, fh, fd, is_directory: self.flag }
            }
            8 => {
                let [fh] = self.words()?;
                Record::Close { fh }
            }
            9 => {
                let [nodeid, owner, fh, fd, pid, start, end] = self.words()?;
                Record::Lock { nodeid, owner, fh, fd, pid, start, end, is_exclusive: self.flag }
            }
            10 => {
                let [nodeid, owner, start, end] = self.words()?;
                Record::Unlock { nodeid, owner, start, end }
            }
            11 => {
                let [nodeid, owner] = self.words()?;
                Record::EndOwner { nodeid, owner }
            }
            12 => {
                let ([unique], _, bytes) = self.split()?;
                Record::Intent { unique, bytes }
            }
            13 => {
                let [nodeid, fh] = self.words()?;
                Record::Floor { nodeid, fh }
            }
            _ => return None,
        })
    }
}
