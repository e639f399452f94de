//! MKNOD: arguments, the name with NUL, extensions. Answered with [`EntryOut`](crate::attr::EntryOut).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of MKNOD (`fuse_mknod_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct MknodIn {
    /// Type and permissions.
    pub mode: U32,
    /// The device, in the 32-bit form of the kernel.
    pub rdev: U32,
    /// The caller's umask.
    pub umask: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<MknodIn>() == 16);
