//! STATFS.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Reply to STATFS (`fuse_kstatfs`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatfsOut {
    /// Number of blocks of `frsize` bytes.
    pub blocks: U64,
    /// Free blocks.
    pub bfree: U64,
    /// Free blocks for an ordinary user.
    pub bavail: U64,
    /// Inodes.
    pub files: U64,
    /// Free inodes.
    pub ffree: U64,
    /// Preferred block size, in bytes.
    pub bsize: U32,
    /// Longest name, in bytes.
    pub namelen: U32,
    /// Block size, in bytes.
    pub frsize: U32,
    /// Zero.
    pub padding: U32,
    /// Zero.
    pub spare: [U32; 6],
}
const _: () = assert!(size_of::<StatfsOut>() == 80);
