//! POSIX access control lists, the values of `system.posix_acl_access` and `system.posix_acl_default`: a [`Header`]
//! and any number of [`Entry`].
//!
//! Source: `include/uapi/linux/posix_acl_xattr.h`, `include/uapi/linux/posix_acl.h`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// The attribute with the access ACL of a file.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the default ACL for new files in a directory.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// Begins the value (`struct posix_acl_xattr_header`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Header {
    /// [`VERSION`]
    pub version: U32,
}
const _: () = assert!(size_of::<Header>() == 4);

/// One entry after the header (`struct posix_acl_xattr_entry`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Entry {
    /// [`USER`], [`GROUP`] or another.
    pub tag: U16,
    /// Read 4, write 2, execute 1.
    pub perm: U16,
    /// A uid or a gid if the tag requires one, else [`ID_NONE`].
    pub id: U32,
}
const _: () = assert!(size_of::<Entry>() == 8);

/// `POSIX_ACL_XATTR_VERSION`
pub const VERSION: u32 = 2;
/// `ACL_USER`: `id` is a uid.
pub const USER: u16 = 0x02;
/// `ACL_GROUP_OBJ`: the file's group.
pub const OWNING_GROUP: u16 = 0x04;
/// `ACL_GROUP`: `id` is a gid.
pub const GROUP: u16 = 0x08;
/// `ACL_MASK`: limits the permissions of named users, named groups and the file's group.
pub const MASK: u16 = 0x10;
/// `ACL_OTHER`
pub const OTHER: u16 = 0x20;
/// `ACL_UNDEFINED_ID`: no id. The kernel refuses it as an id.
pub const ID_NONE: u32 = u32::MAX;
