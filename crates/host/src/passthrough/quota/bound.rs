//! What a request can add at most.

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, FileType, OFlags, SeekFrom, seek};
use transom_wire::{
    Opcode,
    operation::{Effect, MadeType},
    ops::{
        copy_file_range::CopyFileRangeIn, create::CreateIn, fallocate::FallocateIn, mknod::MknodIn, open::OpenIn,
        write::WriteIn, xattr::SetxattrIn,
    },
};
use zerocopy::FromBytes;

use super::ledger::Amount;
use crate::server::Changing;

/// What a request adds beside its data, at most: blocks at both ends of the data, the file system's own blocks that
/// find them (one for each level of a tree), blocks of a directory, and a long symbolic link.
pub(super) const SLACK: u64 = 64 << 10;

/// Returns whether a request changes what is allocated. In an overlay, every change can copy a file.
pub(super) fn is_relevant(request: &Changing<'_>, is_layered: bool) -> bool {
    request.changes().next().is_some() || is_layered && opens_for_writing(request)
}

/// Returns whether a request opens a file so that an overlay copies it.
pub(super) fn opens_for_writing(request: &Changing<'_>) -> bool {
    let flags = if request.row.opcode == Opcode::Open {
        argument(request, |arg: OpenIn| arg.flags.get())
    } else if request.row.opcode == Opcode::Create {
        argument(request, |arg: CreateIn| arg.flags.get())
    } else {
        return false;
    };
    let flags = OFlags::from_bits_retain(flags);
    flags & OFlags::RWMODE != OFlags::RDONLY || flags.contains(OFlags::TRUNC)
}

/// Returns whether a request changes more of a file than its names, so that an overlay copies it.
pub(super) fn copies_up(request: &Changing<'_>) -> bool {
    request.row.effect != Effect::Removes
}

/// Returns whether the kernel of a guest that mounts an overlay sends a request like this to remove a name that is in
/// the lower layer: it makes a white-out and moves it to the name, in a directory that it may have to make.
pub(super) fn may_white_out(request: &Changing<'_>) -> bool {
    /// A note of the kernel's about a directory: `user.overlay.` and a few letters, with a file handle at the most.
    const NOTE_LEN_MAX: u32 = 512;
    match request.row.opcode {
        Opcode::Mknod => {
            let (mode, rdev) = argument(request, |arg: MknodIn| (arg.mode.get(), arg.rdev.get()));
            FileType::from_raw_mode(mode) == FileType::CharacterDevice && rdev == 0
        }
        Opcode::Setxattr => argument(request, |arg: SetxattrIn| arg.size.get()) <= NOTE_LEN_MAX,
        opcode => matches!(opcode, Opcode::Mkdir | Opcode::Rename | Opcode::Rename2),
    }
}

/// Returns what a request can add at most.
pub(super) fn most(request: &Changing<'_>) -> Amount {
    match request.row.effect {
        Effect::Makes(MadeType::SameAs(_)) | Effect::Renames => Amount { bytes: SLACK, files: 0 },
        Effect::Makes(_) | Effect::MakesAndOpens | Effect::OpensNameless => Amount { bytes: SLACK, files: 1 },
        Effect::None => {
            data_len(request).map_or_else(Amount::default, |len| Amount { bytes: len.saturating_add(SLACK), files: 0 })
        }
        Effect::LooksUp
        | Effect::Opens
        | Effect::Lists
        | Effect::Removes
        | Effect::Closes
        | Effect::Flushes
        | Effect::Locks
        | Effect::Forgets
        | Effect::Interrupts => Amount::default(),
    }
}

/// Returns how much data a request adds at most, or `None` if it adds none. (A file that SETATTR makes longer has a
/// hole.)
fn data_len(request: &Changing<'_>) -> Option<u64> {
    let opcode = request.row.opcode;
    if opcode == Opcode::Write {
        Some(argument(request, |arg: WriteIn| arg.size.get()).into())
    } else if opcode == Opcode::Setxattr {
        Some(argument(request, |arg: SetxattrIn| arg.size.get()).into())
    } else if matches!(opcode, Opcode::CopyFileRange | Opcode::CopyFileRange64) {
        Some(argument(request, |arg: CopyFileRangeIn| arg.len.get()))
    } else if opcode == Opcode::Fallocate {
        let frees = FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE;
        let mode = FallocateFlags::from_bits_retain(argument(request, |arg: FallocateIn| arg.mode.get()));
        let len = argument(request, |arg: FallocateIn| arg.length.get());
        (!mode.intersects(frees)).then_some(len)
    } else {
        None
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
