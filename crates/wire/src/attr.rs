//! Attributes, and the entry that a name resolves to.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

bitflags! {
    /// [`Attr::flags`]. Unknown bits are kept.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AttrFlags: u32 {
        /// The root of another file system, which the guest mounts by itself (needs SUBMOUNTS).
        const SUBMOUNT = 1 << 0;
        /// The file may be mapped through the window (needs HAS_INODE_DAX).
        const DAX = 1 << 1;
        const _ = !0;
    }
}

/// Attributes of an inode (`fuse_attr`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs, reason = "the fields are those of stat(2)")]
pub struct Attr {
    pub ino: U64,
    /// In bytes.
    pub size: U64,
    /// Of 512 bytes each.
    pub blocks: U64,
    pub atime: U64,
    pub mtime: U64,
    pub ctime: U64,
    pub atimensec: U32,
    pub mtimensec: U32,
    pub ctimensec: U32,
    pub mode: U32,
    pub nlink: U32,
    pub uid: U32,
    pub gid: U32,
    pub rdev: U32,
    /// In bytes. Linux up to 6.12 writes back through the window only where it equals the page size.
    pub blksize: U32,
    /// See [`AttrFlags`].
    pub flags: U32,
}
const _: () = assert!(size_of::<Attr>() == 88);

/// Reply to LOOKUP, MKNOD, MKDIR, SYMLINK and LINK, and the beginning of the replies to CREATE and TMPFILE
/// (`fuse_entry_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct EntryOut {
    /// 0 if the name is absent, for `entry_valid`.
    pub nodeid: U64,
    /// Distinguishes two inodes with the same nodeid; always 0 here, since a nodeid is never used again.
    pub generation: U64,
    /// Cache lifetime of the name, in seconds.
    pub entry_valid: U64,
    /// How long the attributes may be cached, in seconds.
    pub attr_valid: U64,
    /// Nanoseconds to add to `entry_valid`.
    pub entry_valid_nsec: U32,
    /// Nanoseconds to add to `attr_valid`.
    pub attr_valid_nsec: U32,
    /// The inode's attributes.
    pub attr: Attr,
}
const _: () = assert!(size_of::<EntryOut>() == 128);

/// Reply to GETATTR and SETATTR (`fuse_attr_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AttrOut {
    /// How long the attributes may be cached, in seconds.
    pub attr_valid: U64,
    /// Nanoseconds to add to `attr_valid`.
    pub attr_valid_nsec: U32,
    /// Zero.
    pub dummy: U32,
    /// The inode's attributes.
    pub attr: Attr,
}
const _: () = assert!(size_of::<AttrOut>() == 104);
