//! IOCTL, restricted to requests whose number encodes their size.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of IOCTL (`fuse_ioctl_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IoctlIn {
    /// The open file.
    pub fh: U64,
    /// FUSE_IOCTL_….
    pub flags: U32,
    /// The request.
    pub cmd: U32,
    /// The argument.
    pub arg: U64,
    /// Bytes that follow.
    pub in_size: U32,
    /// Room for the reply's data in the guest, in bytes.
    pub out_size: U32,
}
const _: () = assert!(size_of::<IoctlIn>() == 32);

/// Reply to IOCTL (`fuse_ioctl_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct IoctlOut {
    /// The result of ioctl(2).
    pub result: I32,
    /// Zero.
    pub flags: U32,
    /// Zero.
    pub in_iovs: U32,
    /// Zero.
    pub out_iovs: U32,
}
const _: () = assert!(size_of::<IoctlOut>() == 16);

/// The file is a directory (`FUSE_IOCTL_DIR`).
pub const IOCTL_DIR: u32 = 1 << 4;
