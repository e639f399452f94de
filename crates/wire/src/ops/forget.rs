//! FORGET and BATCH_FORGET: the guest drops references that it got from lookups. There is no reply.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of FORGET (`fuse_forget_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ForgetIn {
    /// Number of references dropped.
    pub nlookup: U64,
}
const _: () = assert!(size_of::<ForgetIn>() == 8);

/// Begins BATCH_FORGET; `count` [`ForgetOne`] structures follow (`fuse_batch_forget_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BatchForgetIn {
    /// Number of entries that follow.
    pub count: U32,
    /// Zero.
    pub dummy: U32,
}
const _: () = assert!(size_of::<BatchForgetIn>() == 8);

/// One entry of BATCH_FORGET (`fuse_forget_one`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ForgetOne {
    /// The inode.
    pub nodeid: U64,
    /// Number of references dropped.
    pub nlookup: U64,
}
const _: () = assert!(size_of::<ForgetOne>() == 16);
