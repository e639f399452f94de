//! A process as the guest of a virtio-fs daemon, without a virtual machine.
//!
//! The entry is [`share`], a share in use by this process. It joins the other modules: the [`transport`] is a
//! vhost-user front end, the [`arena`] is the memory shared with the daemon, the daemon maps files into the [`window`],
//! the [`platform`] implements the operating system's part of `transom-guest`, and [`daemon`] starts a daemon for a
//! directory. [`map`] maps files of the share into this process, and [`fault`] handles faults in such mappings.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod arena;
pub mod daemon;
pub mod fault;
pub mod map;
pub mod platform;
pub mod share;
pub mod transport;
pub mod window;

pub use transom_guest as guest;
