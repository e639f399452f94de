//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Begins SETXATTR with SETXATTR_EXT; the NUL-terminated name and the value follow (`fuse_setxattr_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SetxattrIn {
    /// Bytes of the value.
    pub size: U32,
    /// As in setxattr(2).
    pub flags: U32,
    /// [`SETXATTR_ACL_KILL_SGID`] or 0.
    pub setxattr_flags: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<SetxattrIn>() == 16);

/// Begins SETXATTR without SETXATTR_EXT.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SetxattrInCompat {
    /// Bytes of the value.
    pub size: U32,
    /// As in setxattr(2).
    pub flags: U32,
}
const _: () = assert!(size_of::<SetxattrInCompat>() == 8);

/// Begins GETXATTR, whose NUL-terminated name follows; all of LISTXATTR (`fuse_getxattr_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GetxattrIn {
    /// Room for the reply in the guest, in bytes; 0 requests the size.
    pub size: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<GetxattrIn>() == 8);

/// Reply to GETXATTR and LISTXATTR of size 0 (`fuse_getxattr_out`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GetxattrOut {
    /// Bytes of the value or list.
    pub size: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<GetxattrOut>() == 8);

/// Clear set-group-id: the caller is not in the file's group and sets an access ACL.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
