//! STATX.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use super::getattr::GETATTR_FH;
use crate::Handle;

/// Arguments of STATX (`fuse_statx_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatxIn {
    /// [`GETATTR_FH`] or 0.
    pub getattr_flags: U32,
    /// Zero.
    pub reserved: U32,
    /// The open file, if `getattr_flags` has GETATTR_FH.
    pub fh: U64,
    /// Synchronisation flags as in statx(2).
    pub sx_flags: U32,
    /// The requested fields.
    pub sx_mask: U32,
}
const _: () = assert!(size_of::<StatxIn>() == 24);

impl StatxIn {
    /// Returns the open file, if the request names one.
    pub fn handle(&self) -> Option<Handle> {
        (self.getattr_flags.get() & GETATTR_FH != 0).then(|| self.fh.into())
    }
}

/// A time (`fuse_sx_time`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SxTime {
    /// Seconds.
    pub tv_sec: I64,
    /// Nanoseconds.
    pub tv_nsec: U32,
    /// Zero.
    pub reserved: I32,
}
const _: () = assert!(size_of::<SxTime>() == 16);

/// The fields of statx(2) (`fuse_statx`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Statx {
    /// The valid fields.
    pub mask: U32,
    /// In bytes.
    pub blksize: U32,
    /// STATX_ATTR_….
    pub attributes: U64,
    /// Link count.
    pub nlink: U32,
    /// Owner.
    pub uid: U32,
    /// Group.
    pub gid: U32,
    /// Type and permissions.
    pub mode: U16,
    /// Zero.
    pub spare0: [U16; 1],
    /// Inode number.
    pub ino: U64,
    /// In bytes.
    pub size: U64,
    /// Number of blocks of 512 bytes.
    pub blocks: U64,
    /// The attributes that the host knows.
    pub attributes_mask: U64,
    /// Access time.
    pub atime: SxTime,
    /// Birth time.
    pub btime: SxTime,
    /// Change time.
    pub ctime: SxTime,
    /// Modification time.
    pub mtime: SxTime,
    /// Device number of a device file.
    pub rdev_major: U32,
    /// Device number of a device file.
    pub rdev_minor: U32,
    /// Device number of the file system.
    pub dev_major: U32,
    /// Device number of the file system.
    pub dev_minor: U32,
    /// Zero.
    pub spare2: [U64; 14],
}
const _: () = assert!(size_of::<Statx>() == 256);

/// Reply to STATX (`fuse_statx_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct StatxOut {
    /// How long the attributes may be cached, in seconds.
    pub attr_valid: U64,
    /// Nanoseconds to add to `attr_valid`.
    pub attr_valid_nsec: U32,
    /// Zero.
    pub flags: U32,
    /// Zero.
    pub spare: [U64; 2],
    /// The attributes.
    pub stat: Statx,
}
const _: () = assert!(size_of::<StatxOut>() == 288);
