//! LINK: arguments and the new name with NUL. Answered with [`EntryOut`](crate::attr::EntryOut).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of LINK (`fuse_link_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LinkIn {
    /// The inode that gets a further name.
    pub oldnodeid: U64,
}
const _: () = assert!(size_of::<LinkIn>() == 8);
