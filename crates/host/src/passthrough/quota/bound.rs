//! What a request can add at most.

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, seek};
use transom_wire::{
    Opcode,
    operation::Effect,
    ops::{
        copy_file_range::CopyFileRangeIn, create::CreateIn, fallocate::FallocateIn, open::OpenIn, write::WriteIn,
        xattr::SetxattrIn,
    },
};
use zerocopy::FromBytes;

use super::ledger::Amount;
use crate::server::Changing;

/// What a request adds beside its data, at most: blocks at both ends of the data, the file system's own blocks that find
/// them (one for each level of a tree), blocks of a directory, and a long symbolic link.
pub(super) const SLACK: u64 = 64 << 10;

/// Returns whether a request changes what is allocated. In an overlay, every change can copy a file.
pub(super) fn is_relevant(request: &Changing<'_>, is_layered: bool) -> bool {
    request.changes().next().is_some() || is_layered && opens_for_writing(request)
}

/// Returns whether a request opens a file so that an overlay copies it.
pub(super) fn opens_for_writing(request: &Changing<'_>) -> bool {
    let flags = match request.row.opcode {
        Opcode::Open => argument(request, |arg: OpenIn| arg.flags.get()),
        Opcode::Create => argument(request, |arg: CreateIn| arg.flags.get()),
        _ => return false,
    };
    let flags = OFlags::from_bits_retain(flags);
    flags & OFlags::RWMODE != OFlags::RDONLY || flags.contains(OFlags::TRUNC)
}

/// Returns whether a request changes more of a file than its names, so that an overlay copies it.
pub(super) fn copies_up(request: &Changing<'_>) -> bool {
    request.row.effect != Effect::Removes
}

/// Returns what a request can add at most.
pub(super) fn most(request: &Changing<'_>) -> Amount {
    let data = |len: u64| Amount { bytes: len.saturating_add(SLACK), files: 0 };
    match request.row.opcode {
        Opcode::Write => data(argument(request, |arg: WriteIn| arg.size.get()).into()),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => {
            data(argument(request, |arg: CopyFileRangeIn| arg.len.get()))
        }
        Opcode::Setxattr => data(argument(request, |arg: SetxattrIn| arg.size.get()).into()),
        Opcode::Fallocate => {
            let mode = FallocateFlags::from_bits_retain(argument(request, |arg: FallocateIn| arg.mode.get()));
            let frees = FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE;
            let len = argument(request, |arg: FallocateIn| arg.length.get());
            if mode.intersects(frees) { Amount::default() } else { data(len) }
        }
        // A new length is a hole, and what is cut off is freed.
        Opcode::Setattr | Opcode::Removexattr | Opcode::Open | Opcode::Ioctl => Amount::default(),
        Opcode::Unlink | Opcode::Rmdir => Amount::default(),
        Opcode::Rename | Opcode::Rename2 | Opcode::Link => Amount { bytes: SLACK, files: 0 },
        // What makes an inode, and whatever will be added to the table.
        _ => Amount { bytes: SLACK, files: 1 },
    }
}

/// Returns whether a WRITE goes to blocks that the file has.
pub(super) fn has_blocks(request: &Changing<'_>, file: impl AsFd) -> bool {
    if request.row.opcode != Opcode::Write {
        return false;
    }
    let (offset, size, flags) = argument(request, |arg: WriteIn| (arg.offset.get(), arg.size.get(), arg.flags.get()));
    let appends = OFlags::from_bits_retain(flags).contains(OFlags::APPEND);
    let hole = seek(file, SeekFrom::Hole(offset));
    !appends && hole.is_ok_and(|hole| hole >= offset.saturating_add(size.into()))
}

/// Returns a part of a request's arguments, or its default if they are shorter.
fn argument<A: FromBytes, T: Default>(request: &Changing<'_>, part: impl FnOnce(A) -> T) -> T {
    A::read_from_prefix(request.args).map(|(arg, _)| part(arg)).unwrap_or_default()
}
