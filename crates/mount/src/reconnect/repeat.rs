//! Which requests may be sent again when nobody knows whether they were done.
//!
//! Those that change nothing, and those that leave things as they are when done twice: data at an offset, attributes. Names are
//! not among them: a second UNLINK would take what somebody has made meanwhile, or fail for what the first has done.

use std::mem::offset_of;

use transom_wire::{
    Opcode,
    ops::{
        fallocate::FallocateIn,
        write::{WriteFlags, WriteIn},
        xattr::SetxattrIn,
    },
};

use super::request::Request;

/// Modes of fallocate(2) that move what lies behind.
const MOVING: u32 = (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) as u32;
/// Flags of setxattr(2) by which a second call fails.
const PRESENCE: u32 = (libc::XATTR_CREATE | libc::XATTR_REPLACE) as u32;

/// Whether it is right to send `request` twice.
pub(super) fn is_repeatable(request: &Request<'_>) -> bool {
    let Some(opcode) = request.opcode else { return false };
    match opcode {
        Opcode::Write => {
            let is_exact = request.word(offset_of!(WriteIn, write_flags)) & WriteFlags::CACHE.bits() != 0;
            is_exact || request.word(offset_of!(WriteIn, flags)) & libc::O_APPEND as u32 == 0
        }
        Opcode::Fallocate => request.word(offset_of!(FallocateIn, mode)) & MOVING == 0,
        Opcode::Setxattr => request.word(offset_of!(SetxattrIn, flags)) & PRESENCE == 0,
        Opcode::Create => request.word(0) & libc::O_EXCL as u32 == 0,
        Opcode::Lookup
        | Opcode::Getattr
        | Opcode::Setattr
        | Opcode::Readlink
        | Opcode::Open
        | Opcode::Opendir
        | Opcode::Read
        | Opcode::Readdir
        | Opcode::Readdirplus
        | Opcode::Statfs
        | Opcode::Release
        | Opcode::Releasedir
        | Opcode::Fsync
        | Opcode::Fsyncdir
        | Opcode::Syncfs
        | Opcode::Getxattr
        | Opcode::Listxattr
        | Opcode::Getlk
        | Opcode::Setlk
        | Opcode::Setlkw
        | Opcode::Access
        | Opcode::Lseek
        | Opcode::Bmap
        // The first one went with the daemon.
        | Opcode::Tmpfile => true,
        _ => false,
    }
}
