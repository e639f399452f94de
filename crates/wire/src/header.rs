//! The headers of messages, in either direction.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Begins each request (`fuse_in_header`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InHeader {
    /// Bytes of the whole request, this header included.
    pub len: U32,
    /// See [`Opcode`](crate::Opcode).
    pub opcode: U32,
    /// Returned in the reply.
    pub unique: U64,
    /// The inode of the operation; 0 without one.
    pub nodeid: U64,
    /// The caller's file-system uid; `u32::MAX` under ALLOW_IDMAP for operations that create nothing.
    pub uid: U32,
    /// The caller's file-system gid; as `uid`.
    pub gid: U32,
    /// The caller's pid in the guest, 0 if unknown.
    pub pid: U32,
    /// Extensions after the arguments, in units of 8 bytes.
    pub total_extlen: U16,
    /// Zero.
    pub padding: U16,
}
const _: () = assert!(size_of::<InHeader>() == 40);

/// Begins each reply and each notification (`fuse_out_header`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OutHeader {
    /// Bytes of the whole reply, this header included.
    pub len: U32,
    /// 0, a negative errno, or the code of a notification.
    pub error: I32,
    /// The request's `unique`, 0 in a notification.
    pub unique: U64,
}
const _: () = assert!(size_of::<OutHeader>() == 16);
