//! LSEEK, for SEEK_DATA and SEEK_HOLE.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of LSEEK (`fuse_lseek_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LseekIn {
    /// The open file.
    pub fh: U64,
    /// In bytes.
    pub offset: U64,
    /// As in lseek(2).
    pub whence: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<LseekIn>() == 24);

/// Reply to LSEEK (`fuse_lseek_out`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LseekOut {
    /// In bytes.
    pub offset: U64,
}
const _: () = assert!(size_of::<LseekOut>() == 8);
