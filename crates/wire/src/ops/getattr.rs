//! GETATTR. The reply is [`AttrOut`](crate::attr::AttrOut).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use crate::Handle;

/// Arguments of GETATTR (`fuse_getattr_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct GetattrIn {
    /// [`GETATTR_FH`] or 0.
    pub getattr_flags: U32,
    /// Zero.
    pub dummy: U32,
    /// The open file, if `getattr_flags` has GETATTR_FH.
    pub fh: U64,
}
const _: () = assert!(size_of::<GetattrIn>() == 16);

/// `fh` is valid.
pub const GETATTR_FH: u32 = 1 << 0;

impl GetattrIn {
    /// Returns the open file, if the request names one.
    pub fn handle(&self) -> Option<Handle> {
        (self.getattr_flags.get() & GETATTR_FH != 0).then(|| self.fh.into())
    }
}
