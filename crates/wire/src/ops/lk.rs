//! GETLK, SETLK and SETLKW: POSIX record locks and flock.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// A range and its lock (`fuse_file_lock`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct FileLock {
    /// First byte.
    pub start: U64,
    /// Last byte, inclusive; `i64::MAX` for the end of file.
    pub end: U64,
    /// F_RDLCK, F_WRLCK or F_UNLCK.
    pub type_: U32,
    /// The owner's pid in the guest.
    pub pid: U32,
}
const _: () = assert!(size_of::<FileLock>() == 24);

/// Arguments of GETLK, SETLK and SETLKW (`fuse_lk_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LkIn {
    /// The open file.
    pub fh: U64,
    /// The owner of the lock.
    pub owner: U64,
    /// The lock.
    pub lk: FileLock,
    /// [`LK_FLOCK`] or 0.
    pub lk_flags: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<LkIn>() == 48);

/// Reply to GETLK (`fuse_lk_out`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LkOut {
    /// A conflicting lock, or `type_` F_UNLCK.
    pub lk: FileLock,
}
const _: () = assert!(size_of::<LkOut>() == 24);

/// flock(2) rather than a POSIX lock.
pub const LK_FLOCK: u32 = 1 << 0;
