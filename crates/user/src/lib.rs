//! A process as the guest of a virtio-fs daemon, without a virtual machine.
//!
//! The [`transport`] is a vhost-user front end, the [`arena`] the memory that it shares with the daemon, the [`window`]
//! where the daemon maps files, the [`platform`] what `transom-guest` asks of an operating system, and [`daemon`]
//! starts one for a directory. [`share`] joins them: a share in use by this process. [`map`] shows files at addresses
//! of this process, and [`fault`] survives what vanishes there.

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
