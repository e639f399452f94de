//! FALLOCATE.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of FALLOCATE (`fuse_fallocate_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FallocateIn {
    /// The open file.
    pub fh: U64,
    /// In bytes.
    pub offset: U64,
    /// In bytes.
    pub length: U64,
    /// As in fallocate(2).
    pub mode: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<FallocateIn>() == 32);
