//! RENAME and RENAME2: arguments, the old name and the new one, each NUL-terminated. The reply is only the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of RENAME (`fuse_rename_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RenameIn {
    /// The directory of the new name.
    pub newdir: U64,
}
const _: () = assert!(size_of::<RenameIn>() == 8);

/// Arguments of RENAME2 (`fuse_rename2_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Rename2In {
    /// The directory of the new name.
    pub newdir: U64,
    /// As in renameat2(2); unknown bits are refused.
    pub flags: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<Rename2In>() == 16);
