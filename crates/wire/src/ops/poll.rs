//! POLL.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of POLL (`fuse_poll_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PollIn {
    /// The open file.
    pub fh: U64,
    /// Identifies the waiter in a notification.
    pub kh: U64,
    /// Bit 0: notify when it changes.
    pub flags: U32,
    /// As in poll(2).
    pub events: U32,
}
const _: () = assert!(size_of::<PollIn>() == 24);

/// Reply to POLL (`fuse_poll_out`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct PollOut {
    /// As in poll(2).
    pub revents: U32,
    /// Zero.
    pub padding: U32,
}
const _: () = assert!(size_of::<PollOut>() == 8);
