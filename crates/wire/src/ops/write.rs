//! WRITE: arguments and data.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

bitflags! {
    /// [`WriteIn::write_flags`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct WriteFlags: u32 {
        /// Written back from the guest's page cache: the caller is not necessarily the writer.
        const CACHE = 1 << 0;
        /// `lock_owner` is valid.
        const LOCKOWNER = 1 << 1;
        /// Clear set-user-id and set-group-id.
        const KILL_SUIDGID = 1 << 2;
    }
}

/// Arguments of WRITE (`fuse_write_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WriteIn {
    /// The open file.
    pub fh: U64,
    /// In bytes.
    pub offset: U64,
    /// Bytes of data.
    pub size: U32,
    /// See [`WriteFlags`].
    pub write_flags: U32,
    /// Valid if `write_flags` has LOCKOWNER.
    pub lock_owner: U64,
    /// The open file's flags.
    pub flags: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<WriteIn>() == 40);

/// Reply to WRITE and COPY_FILE_RANGE (`fuse_write_out`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct WriteOut {
    /// Bytes written.
    pub size: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<WriteOut>() == 8);

impl WriteOut {
    /// Creates a reply that reports `size` bytes written.
    pub fn new(size: u32) -> Self {
        Self { size: size.into(), padding: 0.into() }
    }
}
