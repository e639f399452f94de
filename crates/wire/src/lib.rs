//! The messages between a virtio-fs driver and a device: FUSE messages and the structures of the virtio device.
//!
//! [`operation`] is the table of operations, with one row for each, from which both sides, the tests and the fuzzers
//! derive the rest. Every structure is `#[repr(C)]`, little endian, without implicit padding, and readable at any
//! alignment; its size is asserted beside it. [`ops`] has one file for the structures of each operation. Shared
//! structures are in [`header`], [`attr`], [`dirent`], [`extension`] and [`acl`]; [`backing`] has the ioctls of the
//! device file, [`linux`] the flags of system calls that messages carry, [`window`] the units of DAX, [`agent`] the
//! channel to the agent in a guest, [`notification`] what the notification queue carries, and [`own_changes`] what
//! replies may tell a guest that has a version table. Nothing here does input or output, allocates, or depends on a
//! host or a guest.
//!
//! Source: `include/uapi/linux/fuse.h` up to minor 45, and virtio 1.3 §5.11.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod acl;
pub mod agent;
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
pub mod notification;
pub mod opcode;
pub mod operation;
pub mod ops;
pub mod own_changes;
pub mod window;

pub use ids::{Handle, NodeId, Unique};
pub use name::{Name, NameError};
pub use opcode::{OPCODE_LIMIT, Opcode};
pub use operation::{Operation, Row};
pub use zerocopy::little_endian::{I32, I64, U16, U32, U64};
