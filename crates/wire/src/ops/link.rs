//! LINK: arguments and the NUL-terminated new name. The reply is [`EntryOut`](crate::attr::EntryOut).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of LINK (`fuse_link_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LinkIn {
    /// The inode that gets another name.
    pub oldnodeid: U64,
}
const _: () = assert!(size_of::<LinkIn>() == 8);
