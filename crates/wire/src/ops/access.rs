//! ACCESS.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of ACCESS (`fuse_access_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AccessIn {
    /// As in access(2).
    pub mask: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<AccessIn>() == 8);
