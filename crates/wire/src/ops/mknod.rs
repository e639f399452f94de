//! MKNOD: arguments, the NUL-terminated name, extensions. The reply is [`EntryOut`](crate::attr::EntryOut).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of MKNOD (`fuse_mknod_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MknodIn {
    /// Type and permissions.
    pub mode: U32,
    /// The device number, in the kernel's 32-bit form.
    pub rdev: U32,
    /// The caller's umask.
    pub umask: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<MknodIn>() == 16);
