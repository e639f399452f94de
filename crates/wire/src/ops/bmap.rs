//! BMAP.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of BMAP (`fuse_bmap_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BmapIn {
    /// The block of the file.
    pub block: U64,
    /// In bytes.
    pub blocksize: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<BmapIn>() == 16);

/// Reply to BMAP (`fuse_bmap_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BmapOut {
    /// The block of the device.
    pub block: U64,
}
const _: () = assert!(size_of::<BmapOut>() == 8);
