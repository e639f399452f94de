//! SETATTR. The reply is [`AttrOut`](crate::attr::AttrOut).

#![allow(
    missing_docs,
    reason = "the flags are named as in the specification, and bitflags repeats them without their comments"
)]

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

bitflags! {
    /// The valid fields of [`SetattrIn`]. Unknown bits are refused.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SetattrValid: u32 {
        const MODE = 1 << 0;
        const UID = 1 << 1;
        const GID = 1 << 2;
        const SIZE = 1 << 3;
        const ATIME = 1 << 4;
        const MTIME = 1 << 5;
        /// `fh` names the open file to use.
        const FH = 1 << 6;
        /// Set the access time to the host's current time.
        const ATIME_NOW = 1 << 7;
        /// Set the modification time to the host's current time.
        const MTIME_NOW = 1 << 8;
        /// `lock_owner` is valid (mandatory locks, which Linux no longer has).
        const LOCKOWNER = 1 << 9;
        const CTIME = 1 << 10;
        /// Clear set-user-id, and set-group-id if the group may execute.
        const KILL_SUIDGID = 1 << 11;
    }
}

/// Arguments of SETATTR (`fuse_setattr_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct SetattrIn {
    /// See [`SetattrValid`].
    pub valid: U32,
    /// Zero.
    pub padding: U32,
    /// Valid if `valid` has FH.
    pub fh: U64,
    /// In bytes.
    pub size: U64,
    /// Valid if `valid` has LOCKOWNER.
    pub lock_owner: U64,
    /// Seconds.
    pub atime: U64,
    /// Seconds.
    pub mtime: U64,
    /// Seconds.
    pub ctime: U64,
    /// Nanoseconds.
    pub atimensec: U32,
    /// Nanoseconds.
    pub mtimensec: U32,
    /// Nanoseconds.
    pub ctimensec: U32,
    /// As in chmod(2).
    pub mode: U32,
    /// Zero.
    pub unused4: U32,
    /// The new owner.
    pub uid: U32,
    /// The new group.
    pub gid: U32,
    /// Zero.
    pub unused5: U32,
}
const _: () = assert!(size_of::<SetattrIn>() == 88);

impl SetattrIn {
    /// Returns the valid fields, or `None` if a bit is unknown.
    pub fn valid(&self) -> Option<SetattrValid> {
        SetattrValid::from_bits(self.valid.get())
    }
}
