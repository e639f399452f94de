//! READ, READDIR and READDIRPLUS. The reply is data, or entries of [`dirent`](crate::dirent).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of READ, READDIR and READDIRPLUS (`fuse_read_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReadIn {
    /// The open file.
    pub fh: U64,
    /// In bytes; in a directory, the `off` of the entry before.
    pub offset: U64,
    /// Number of bytes requested.
    pub size: U32,
    /// [`READ_LOCKOWNER`] or 0.
    pub read_flags: U32,
    /// Valid if `read_flags` has READ_LOCKOWNER.
    pub lock_owner: U64,
    /// The open file's flags.
    pub flags: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<ReadIn>() == 40);

/// `lock_owner` is valid.
pub const READ_LOCKOWNER: u32 = 1 << 1;
