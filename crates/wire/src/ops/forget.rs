//! FORGET and BATCH_FORGET: the guest drops references that lookups gave it. No reply.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of FORGET (`fuse_forget_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ForgetIn {
    /// How many references are dropped.
    pub nlookup: U64,
}
const _: () = assert!(size_of::<ForgetIn>() == 8);

/// Begins BATCH_FORGET; `count` times [`ForgetOne`] follow (`fuse_batch_forget_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct BatchForgetIn {
    /// How many entries follow.
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
    /// How many references are dropped.
    pub nlookup: U64,
}
const _: () = assert!(size_of::<ForgetOne>() == 16);
