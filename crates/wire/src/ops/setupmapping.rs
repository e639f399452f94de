//! SETUPMAPPING: maps a range of a file into the window. The reply is only the header.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of SETUPMAPPING (`fuse_setupmapping_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SetupmappingIn {
    /// The open file; Linux sends `u64::MAX` and refers to the nodeid.
    pub fh: U64,
    /// Offset in the file, in bytes.
    pub foffset: U64,
    /// In bytes.
    pub len: U64,
    /// [`SETUPMAPPING_WRITE`] and [`SETUPMAPPING_READ`].
    pub flags: U64,
    /// Offset in the window, in bytes.
    pub moffset: U64,
}
const _: () = assert!(size_of::<SetupmappingIn>() == 40);

/// The guest will write through the mapping.
pub const SETUPMAPPING_WRITE: u64 = 1 << 0;
/// The guest will read through the mapping.
pub const SETUPMAPPING_READ: u64 = 1 << 1;
