//! INTERRUPT. There is no reply.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, little_endian::*};

/// Arguments of INTERRUPT (`fuse_interrupt_in`).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct InterruptIn {
    /// The request to interrupt.
    pub unique: U64,
}
const _: () = assert!(size_of::<InterruptIn>() == 8);
