//! INIT: the session's first request, which negotiates version, limits and features.

#![allow(
    missing_docs,
    reason = "the flags are named as in the specification, and bitflags repeats them without their comments"
)]

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use crate::own_changes::MAGIC;

/// The major version; a different one ends the negotiation.
pub const KERNEL_VERSION: u32 = 7;
/// The newest minor version that is supported here (Linux 7.2).
pub const KERNEL_MINOR_VERSION: u32 = 45;

bitflags! {
    /// `flags` and, from bit 32, `flags2` of INIT. Unknown bits are ignored.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct InitFlags: u64 {
        const ASYNC_READ = 1 << 0;
        const POSIX_LOCKS = 1 << 1;
        const FILE_OPS = 1 << 2;
        const ATOMIC_O_TRUNC = 1 << 3;
        const EXPORT_SUPPORT = 1 << 4;
        const BIG_WRITES = 1 << 5;
        const DONT_MASK = 1 << 6;
        const SPLICE_WRITE = 1 << 7;
        const SPLICE_MOVE = 1 << 8;
        const SPLICE_READ = 1 << 9;
        const FLOCK_LOCKS = 1 << 10;
        const HAS_IOCTL_DIR = 1 << 11;
        const AUTO_INVAL_DATA = 1 << 12;
        const DO_READDIRPLUS = 1 << 13;
        const READDIRPLUS_AUTO = 1 << 14;
        const ASYNC_DIO = 1 << 15;
        const WRITEBACK_CACHE = 1 << 16;
        const NO_OPEN_SUPPORT = 1 << 17;
        const PARALLEL_DIROPS = 1 << 18;
        const HANDLE_KILLPRIV = 1 << 19;
        const POSIX_ACL = 1 << 20;
        const ABORT_ERROR = 1 << 21;
        const MAX_PAGES = 1 << 22;
        const CACHE_SYMLINKS = 1 << 23;
        const NO_OPENDIR_SUPPORT = 1 << 24;
        const EXPLICIT_INVAL_DATA = 1 << 25;
        const MAP_ALIGNMENT = 1 << 26;
        const SUBMOUNTS = 1 << 27;
        const HANDLE_KILLPRIV_V2 = 1 << 28;
        const SETXATTR_EXT = 1 << 29;
        /// `flags2` is valid.
        const INIT_EXT = 1 << 30;
        const SECURITY_CTX = 1 << 32;
        const HAS_INODE_DAX = 1 << 33;
        const CREATE_SUPP_GROUP = 1 << 34;
        const HAS_EXPIRE_ONLY = 1 << 35;
        const DIRECT_IO_ALLOW_MMAP = 1 << 36;
        const PASSTHROUGH = 1 << 37;
        const NO_EXPORT_SUPPORT = 1 << 38;
        const HAS_RESEND = 1 << 39;
        const ALLOW_IDMAP = 1 << 40;
        const OVER_IO_URING = 1 << 41;
        const REQUEST_TIMEOUT = 1 << 42;
        /// Not of FUSE: replies may end with a trailer of [`own_changes`](crate::own_changes). Linux hands out bits
        /// from below. Meant only if [`InitIn::has_magic`] and [`InitOut::has_magic`] say so.
        const OWN_CHANGES = 1 << 63;
    }
}

/// Arguments of INIT from minor 36 on (`fuse_init_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitIn {
    /// 7.
    pub major: U32,
    /// The newest minor version that the guest supports.
    pub minor: U32,
    /// In bytes.
    pub max_readahead: U32,
    /// The lower half of [`InitFlags`].
    pub flags: U32,
    /// The upper half.
    pub flags2: U32,
    /// Zero, or [`MAGIC`] at its end.
    pub unused: [U32; 11],
}
const _: () = assert!(size_of::<InitIn>() == 64);

impl InitIn {
    /// Returns whether the guest means [`InitFlags::OWN_CHANGES`] by that flag.
    pub fn has_magic(&self) -> bool {
        self.as_bytes().ends_with(&MAGIC)
    }

    /// States that the guest means [`InitFlags::OWN_CHANGES`] by that flag.
    pub fn set_magic(&mut self) {
        let at = size_of::<Self>() - MAGIC.len();
        self.as_mut_bytes()[at..].copy_from_slice(&MAGIC);
    }
}

/// Bytes of [`InitIn`] before minor 36: no `flags2`.
pub const INIT_IN_COMPAT_LEN: usize = 16;

/// Reply to INIT (`fuse_init_out`).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InitOut {
    /// 7.
    pub major: U32,
    /// The older of both sides' newest minor versions.
    pub minor: U32,
    /// In bytes.
    pub max_readahead: U32,
    /// The lower half of [`InitFlags`].
    pub flags: U32,
    /// Maximum number of background requests in flight.
    pub max_background: U16,
    /// Number of background requests above which the guest throttles.
    pub congestion_threshold: U16,
    /// Maximum bytes of data in one WRITE.
    pub max_write: U32,
    /// Granularity of times, in nanoseconds.
    pub time_gran: U32,
    /// Maximum pages of data in one request.
    pub max_pages: U16,
    /// log2 of the alignment of mappings.
    pub map_alignment: U16,
    /// The upper half of [`InitFlags`].
    pub flags2: U32,
    /// For PASSTHROUGH.
    pub max_stack_depth: U32,
    /// In seconds.
    pub request_timeout: U16,
    /// Zero, or [`MAGIC`] at its end.
    pub unused: [U16; 11],
}
const _: () = assert!(size_of::<InitOut>() == 64);

impl InitOut {
    /// Returns whether the daemon means [`InitFlags::OWN_CHANGES`] by that flag.
    pub fn has_magic(&self) -> bool {
        self.as_bytes().ends_with(&MAGIC)
    }

    /// States that the daemon means [`InitFlags::OWN_CHANGES`] by that flag.
    pub fn set_magic(&mut self) {
        let at = size_of::<Self>() - MAGIC.len();
        self.as_mut_bytes()[at..].copy_from_slice(&MAGIC);
    }
}
