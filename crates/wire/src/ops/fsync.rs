//! FSYNC and FSYNCDIR.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of FSYNC and FSYNCDIR (`fuse_fsync_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FsyncIn {
    /// The open file.
    pub fh: U64,
    /// [`FSYNC_FDATASYNC`] or 0.
    pub fsync_flags: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<FsyncIn>() == 16);

/// Data only, and the metadata needed to read it.
pub const FSYNC_FDATASYNC: u32 = 1 << 0;
