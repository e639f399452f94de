//! The guest's side of virtio-fs, for kernels, unikernels and programs that are not Linux.
//!
//! From below: a [`transport`] reaches the device's registers and queues, [`dma`] makes memory reachable for the
//! device, and a [`channel`] carries FUSE messages over rings. What runs underneath (locks, waiting, time) is the
//! [`platform`]'s. A [`session`] speaks FUSE through it, with one file of [`ops`] for each operation. Nothing here
//! needs an operating system: the crate is `no_std` with `alloc`.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

extern crate alloc;

// The examples of the guide are compiled with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guest-library.md")]
struct Guide;

pub mod cache;
pub mod channel;
pub mod dax;
pub mod device;
pub mod dma;
pub mod errno;
pub mod fs;
pub mod ops;
pub mod platform;
mod queue;
pub mod ring;
pub mod session;
mod shared_copy;
mod sync;
pub mod transport;
pub mod volume;

pub use errno::Errno;
pub use platform::Platform;
