//! RELEASE and RELEASEDIR.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of RELEASE and RELEASEDIR (`fuse_release_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ReleaseIn {
    /// The open file.
    pub fh: U64,
    /// The open file's flags.
    pub flags: U32,
    /// [`RELEASE_FLUSH`] and [`RELEASE_FLOCK_UNLOCK`].
    pub release_flags: U32,
    /// Valid if `release_flags` is not 0.
    pub lock_owner: U64,
}
const _: () = assert!(size_of::<ReleaseIn>() == 24);

/// Drop the owner's POSIX locks, as FLUSH does.
pub const RELEASE_FLUSH: u32 = 1 << 0;
/// Drop the flock of this open file.
pub const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
