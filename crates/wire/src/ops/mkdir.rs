//! MKDIR: arguments, the NUL-terminated name, extensions. The reply is [`EntryOut`](crate::attr::EntryOut).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of MKDIR (`fuse_mkdir_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MkdirIn {
    /// Permissions.
    pub mode: U32,
    /// The caller's umask.
    pub umask: U32,
}
const _: () = assert!(size_of::<MkdirIn>() == 8);
