//! CREATE and TMPFILE: arguments, the NUL-terminated name, extensions.
//!
//! The reply is [`EntryOut`] and [`OpenOut`].

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

use super::open::OpenOut;
use crate::attr::EntryOut;

/// Arguments of CREATE and TMPFILE (`fuse_create_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CreateIn {
    /// As in open(2).
    pub flags: U32,
    /// Permissions.
    pub mode: U32,
    /// The caller's umask.
    pub umask: U32,
    /// As [`OpenIn::open_flags`](super::open::OpenIn::open_flags).
    pub open_flags: U32,
}
const _: () = assert!(size_of::<CreateIn>() == 16);

/// Reply to CREATE and TMPFILE: `fuse_entry_out`, then `fuse_open_out`.
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CreateOut {
    /// The new file.
    pub entry: EntryOut,
    /// The new file, opened.
    pub open: OpenOut,
}
const _: () = assert!(size_of::<CreateOut>() == 144);
