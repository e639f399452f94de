//! REMOVEMAPPING: a count, then ranges of the window, unaligned.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Begins REMOVEMAPPING (`fuse_removemapping_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemovemappingIn {
    /// Number of ranges that follow.
    pub count: U32,
}
const _: () = assert!(size_of::<RemovemappingIn>() == 4);

/// One range (`fuse_removemapping_one`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RemovemappingOne {
    /// Offset in the window, in bytes.
    pub moffset: U64,
    /// In bytes.
    pub len: U64,
}
const _: () = assert!(size_of::<RemovemappingOne>() == 16);
