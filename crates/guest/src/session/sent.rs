//! What is kept of a request whose reply nobody waits for yet: the parts with which the reply has to agree.
//!
//! The type of a reply does not tell the operation, so the checks that differ by operation are here.

use alloc::{sync::Arc, vec::Vec};
use core::ops::{Range, RangeInclusive};

use transom_wire::{
    NodeId, Opcode,
    attr::EntryOut,
    header::InHeader,
    limits::{SYMLINK_LEN_MAX, XATTR_LIST_LEN_MAX, XATTR_VALUE_LEN_MAX},
    linux::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, SEEK_DATA, SEEK_HOLE},
    ops::{copy_file_range::CopyFileRangeIn, create::CreateIn, lseek::LseekIn, mknod::MknodIn, open::OpenIn},
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::Session;
use crate::{Errno, Platform, dma::DmaBuffer};

/// The parts of a request with which its reply has to agree.
pub struct Sent {
    opcode: Opcode,
    /// Bytes of file data.
    pub(super) data_len: usize,
    /// The inode in the header.
    pub(super) node: NodeId,
    /// The flags with which it opens a file, if it does.
    pub(super) open_flags: u32,
    /// There is room for bytes of the reply.
    pub(super) has_room: bool,
    /// Where bytes come that are checked: a target, a list of names.
    text: Option<(Arc<DmaBuffer>, Range<usize>)>,
    /// The type of the file that the operation makes, if it makes one.
    file_type: Option<u32>,
    /// What the number in the reply may be, if there is one: a position, a length.
    numbers: RangeInclusive<u64>,
}

impl Sent {
    /// Describes a request, whose `head` begins with its header.
    pub(super) fn new(
        opcode: Opcode,
        head: &[u8],
        data_len: usize,
        room: Option<&(Arc<DmaBuffer>, Range<usize>)>,
    ) -> Self {
        let has_text = matches!(opcode, Opcode::Readlink | Opcode::Listxattr);
        let text = room.filter(|_| has_text).map(|(buffer, range)| (Arc::clone(buffer), range.clone()));
        let node = InHeader::read_from_prefix(head).map_or(NodeId(0), |(header, _)| header.nodeid.into());
        let open_flags = open_flags(opcode, head);
        let (file_type, numbers) = (file_type(opcode, head), numbers(opcode, head));
        Self { opcode, data_len, node, open_flags, has_room: room.is_some(), text, file_type, numbers }
    }

    pub(super) fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Checks an entry: only LOOKUP may find none, and a file that was made has the type that was asked for.
    pub(super) fn entry<P: Platform>(&self, session: &Session<P>, entry: EntryOut) -> Result<EntryOut, Errno> {
        if self.opcode == Opcode::Lookup {
            return session.found_entry(entry);
        }
        session.new_entry(entry, self.file_type)
    }

    /// Checks the number in the reply.
    pub(super) fn number<P: Platform>(&self, session: &Session<P>, number: u64) -> Result<u64, Errno> {
        if self.numbers.contains(&number) { Ok(number) } else { Err(session.impossible_eio()) }
    }

    /// Checks the first `len` bytes of the room: the target of a link, or a list of names; returns `len`.
    pub(super) fn text<P: Platform>(&self, session: &Session<P>, len: usize) -> Result<usize, Errno> {
        let len_max = if self.opcode == Opcode::Readlink { SYMLINK_LEN_MAX } else { XATTR_LIST_LEN_MAX };
        let len_max = len_max.min(self.text.as_ref().map_or(0, |(_, range)| range.len()));
        if len > len_max {
            return Err(session.impossible_eio());
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
        bytes.resize(len, 0);
        if let Some((buffer, range)) = &self.text {
            buffer.read(range.start, &mut bytes);
        }
        let is_target = self.opcode == Opcode::Readlink;
        let is_possible = if is_target { !bytes.is_empty() && !bytes.contains(&0) } else { is_list(&bytes) };
        if is_possible { Ok(len) } else { Err(session.impossible_eio()) }
    }
}

/// Returns the type of the file that an operation makes, if it makes one.
fn file_type(opcode: Opcode, head: &[u8]) -> Option<u32> {
    if matches!(opcode, Opcode::Create | Opcode::Tmpfile) {
        Some(S_IFREG)
    } else if opcode == Opcode::Mkdir {
        Some(S_IFDIR)
    } else if opcode == Opcode::Symlink {
        Some(S_IFLNK)
    } else if opcode == Opcode::Mknod {
        args::<MknodIn>(head).map(|args| match args.mode.get() & S_IFMT {
            0 => S_IFREG,
            file_type => file_type,
        })
    } else {
        None
    }
}

/// Returns the flags with which an operation opens a file, if it does.
fn open_flags(opcode: Opcode, head: &[u8]) -> u32 {
    if matches!(opcode, Opcode::Create | Opcode::Tmpfile) {
        args::<CreateIn>(head).map_or(0, |args| args.flags.get())
    } else if matches!(opcode, Opcode::Open | Opcode::Opendir) {
        args::<OpenIn>(head).map_or(0, |args| args.flags.get())
    } else {
        0
    }
}

/// Returns what the number in the reply to an operation may be.
fn numbers(opcode: Opcode, head: &[u8]) -> RangeInclusive<u64> {
    if matches!(opcode, Opcode::CopyFileRange | Opcode::CopyFileRange64) {
        0..=args::<CopyFileRangeIn>(head).map_or(0, |args| args.len.get())
    } else if opcode == Opcode::Lseek {
        let args = args::<LseekIn>(head).filter(|args| [SEEK_DATA, SEEK_HOLE].contains(&args.whence.get()));
        args.map_or(0, |args| args.offset.get())..=i64::MAX as u64
    } else if opcode == Opcode::Getxattr {
        0..=XATTR_VALUE_LEN_MAX as u64
    } else if opcode == Opcode::Listxattr {
        0..=XATTR_LIST_LEN_MAX as u64
    } else {
        0..=u64::MAX
    }
}

/// Returns whether `list` consists of nonempty names, each with its NUL.
pub(crate) fn is_list(list: &[u8]) -> bool {
    match list {
        [] => true,
        [names @ .., 0] => names.split(|&byte| byte == 0).all(|name| !name.is_empty()),
        _ => false,
    }
}

fn args<T: FromBytes + KnownLayout + Immutable>(head: &[u8]) -> Option<T> {
    T::read_from_prefix(head.get(size_of::<InHeader>()..)?).ok().map(|(args, _)| args)
}
