//! FLUSH: a descriptor of an open file was closed.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of FLUSH (`fuse_flush_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FlushIn {
    /// The open file.
    pub fh: U64,
    /// Zero.
    pub unused: U32,
    /// Zero.
    pub padding: U32,
    /// The owner whose POSIX locks end.
    pub lock_owner: U64,
}
const _: () = assert!(size_of::<FlushIn>() == 24);
