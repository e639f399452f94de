//! The mount's own changes: which of them the kernel's caches show, and what the daemon's replies say of them.

use std::mem::offset_of;

use transom_versions::Raised;
use transom_wire::{
    NodeId, Opcode,
    header::OutHeader,
    linux::{O_APPEND, O_DIRECT, O_TRUNC},
    operation::{Row, Shape},
    ops::{
        create::CreateIn,
        write::{WriteFlags, WriteIn},
    },
    own_changes::{self, LEN_MAX},
};

use crate::{fuse_device::SharedBuffer, request::Request};

/// Operations that the kernel's caches always show.
const SHOWN: &[Opcode] = &[
    Opcode::Setattr,
    Opcode::Symlink,
    Opcode::Mknod,
    Opcode::Mkdir,
    Opcode::Link,
    Opcode::Unlink,
    Opcode::Rmdir,
    Opcode::Rename,
    Opcode::Rename2,
];

/// The slots that one request has raised, from a trailer.
pub(super) type RaisedSlots = Vec<(u32, Raised)>;

/// Returns the inodes that a request changes, if Linux's FUSE client makes their caches show the change, or drops them,
/// by the time its caller has the reply. Both directories of a rename; not the inodes that a name leads to.
///
/// Not so:
/// - What is appended: the server puts it at the end of the file, wherever that is by then.
/// - O_DIRECT, which may leave pages in the cache that others read meanwhile.
/// - What is written back from the page cache: the page may have been dropped since.
/// - A WRITE that clears set-user-id bits: the kernel keeps the old mode. Without `posix_acl`, so does an extended
///   attribute that is an access control list to the server.
/// - What is truncated as it is opened, FALLOCATE and COPY_FILE_RANGE, which the kernel follows less exactly.
pub(super) fn shown_changes(request: &Request<'_>, posix_acl: bool) -> [Option<NodeId>; 2] {
    let Some(opcode) = request.opcode else { return [None, None] };
    let is_shown = if opcode == Opcode::Write {
        let unshown = WriteFlags::CACHE | WriteFlags::KILL_SUIDGID;
        request.word(offset_of!(WriteIn, write_flags)) & unshown.bits() == 0
            && request.word(offset_of!(WriteIn, flags)) & (O_APPEND | O_DIRECT) == 0
    } else if opcode == Opcode::Create {
        request.word(offset_of!(CreateIn, flags)) & O_TRUNC == 0
    } else if matches!(opcode, Opcode::Setxattr | Opcode::Removexattr) {
        posix_acl
    } else {
        SHOWN.contains(&opcode)
    };
    let nodeid = request.nodeid();
    let argument = opcode.row().nodeids.first().map(|&at| NodeId(request.long(at)));
    if is_shown { [Some(nodeid), argument.filter(|argument| *argument != nodeid)] } else { [None, None] }
}

/// Cuts off what follows the body of a reply without an error, and appends the slots that it names to `raised`.
pub(super) fn cut_trailer(row: &Row, header: &mut OutHeader, body: &mut SharedBuffer<'_>, raised: &mut RaisedSlots) {
    let Shape::Fixed(len_bytes) = row.reply else { return };
    if row.changes.is_empty() || body.len_bytes <= len_bytes {
        return;
    }
    let mut trailer = [0; LEN_MAX];
    if let Some(trailer) = trailer.get_mut(..body.len_bytes - len_bytes) {
        body.memory.read(body.offset + len_bytes, trailer);
        let changes = own_changes::parse(trailer).unwrap_or_default();
        raised.extend(
            changes
                .iter()
                .map(|change| (change.slot.get(), Raised { previous: change.previous.get(), word: change.new.get() })),
        );
    }
    body.len_bytes = len_bytes;
    header.len = ((size_of::<OutHeader>() + len_bytes) as u32).into();
}

#[cfg(test)]
#[path = "own_test.rs"]
mod tests;
