//! OPEN and OPENDIR.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

bitflags! {
    /// [`OpenOut::open_flags`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct OpenFlags: u32 {
        /// Reads and writes bypass the guest's page cache.
        const DIRECT_IO = 1 << 0;
        /// The guest keeps what it has cached of the file.
        const KEEP_CACHE = 1 << 1;
        /// The file cannot seek.
        const NONSEEKABLE = 1 << 2;
        /// The guest may cache the directory's entries.
        const CACHE_DIR = 1 << 3;
        /// The file is a stream, without a position.
        const STREAM = 1 << 4;
        /// No FLUSH on close.
        const NOFLUSH = 1 << 5;
        /// Direct writes to one file may run in parallel; Linux still serializes those past its end.
        const PARALLEL_DIRECT_WRITES = 1 << 6;
        /// `backing_id` names the file that serves reads and writes.
        const PASSTHROUGH = 1 << 7;
    }
}

/// Arguments of OPEN and OPENDIR (`fuse_open_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpenIn {
    /// As in open(2). Linux removes O_CREAT, O_EXCL and O_NOCTTY, and O_TRUNC too unless ATOMIC_O_TRUNC was
    /// negotiated.
    pub flags: U32,
    /// [`OPEN_KILL_SUIDGID`] or 0.
    pub open_flags: U32,
}
const _: () = assert!(size_of::<OpenIn>() == 8);

/// Clear set-user-id and set-group-id when the file is truncated.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;

/// Reply to OPEN and OPENDIR (`fuse_open_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct OpenOut {
    /// Identifies the open file in later requests.
    pub fh: U64,
    /// See [`OpenFlags`].
    pub open_flags: U32,
    /// Valid if `open_flags` has PASSTHROUGH.
    pub backing_id: I32,
}
const _: () = assert!(size_of::<OpenOut>() == 16);
