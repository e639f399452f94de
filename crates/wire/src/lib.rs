//! The bytes that travel between a virtio-fs driver and a device: FUSE messages and the virtio device's own structures.
//!
//! [`operation`] is the table of operations: one row for each, from which both sides, the tests and the fuzzers derive
//! the rest. Every structure is `#[repr(C)]`, little endian, without padding of its own, and readable at any alignment;
//! its size is asserted beside it. [`ops`] holds one file for each operation's structures; what several share lies
//! beside it: [`header`], [`attr`], [`dirent`], [`extension`], [`acl`]; [`backing`] is what the device file is told;
//! [`linux`] has flags of system calls that messages carry, [`window`] the units of DAX. Nothing here does input or
//! output, allocates, or knows a host or a guest.
//!
//! Source: `include/uapi/linux/fuse.h` up to minor 45, and virtio 1.3 §5.11.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod acl;
pub mod attr;
pub mod backing;
pub mod config;
pub mod device_number;
pub mod dirent;
pub mod extension;
pub mod header;
pub mod ids;
pub mod limits;
pub mod linux;
pub mod name;
pub mod opcode;
pub mod operation;
pub mod ops;
pub mod window;

pub use ids::{Handle, NodeId, Unique};
pub use name::{Name, NameError};
pub use opcode::Opcode;
pub use operation::{Operation, Row};
pub use zerocopy::little_endian::{I32, I64, U16, U32, U64};
