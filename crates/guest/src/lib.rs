//! The guest side of virtio-fs, for kernels, unikernels, and programs that are a guest themselves.
//!
//! From the bottom up: a [`transport`] reaches the device's registers and queues, [`dma`] makes memory reachable by the
//! device, and a [`channel`] carries FUSE messages over virtqueues. The [`platform`] provides locks, waiting and time.
//! A [`session`] speaks FUSE over the channel, with one file in [`ops`] for each operation. A [`volume`] keeps what it
//! has fetched in a [`cache`] and maps files by [`dax`]; [`fs`] has paths. The crate needs no operating system: it is
//! `no_std` with `alloc`.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

extern crate alloc;

// Compiles the guide's examples along with the doc tests.
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
pub mod memory;
pub mod ops;
mod page_size;
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
/// The types of requests and replies.
pub use transom_wire as wire;
