//! SYNCFS.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of SYNCFS (`fuse_syncfs_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SyncfsIn {
    /// Zero.
    pub padding: U64,
}
const _: () = assert!(size_of::<SyncfsIn>() == 8);
