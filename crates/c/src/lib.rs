//! The C interface of the guest library: `include/transom.h` says what each function does.
//!
//! A file system is a [`Share`](share::Share), whatever its platform: a process ([`connect`]), or a kernel in C with
//! its [`table`] of functions, whose device [`mount`] brings up. [`pointers`] checks what C passes.

#![cfg_attr(not(feature = "std"), no_std)]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

extern crate alloc;

#[cfg(feature = "std")]
mod connect;
mod files;
#[cfg(not(feature = "std"))]
mod freestanding;
mod memory;
mod mount;
mod names;
mod platform;
mod pointers;
mod registers;
mod share;
mod table;

#[cfg(feature = "std")]
pub use connect::transom_connect;
pub use files::{
    transom_close, transom_closedir, transom_fstat, transom_fsync, transom_open, transom_opendir, transom_read,
    transom_readdir, transom_truncate, transom_write,
};
pub use mount::{transom_describe, transom_mount_mmio, transom_mount_pci, transom_syncfs, transom_unmount};
pub use names::{transom_lstat, transom_mkdir, transom_rename, transom_rmdir, transom_stat, transom_unlink};
pub use registers::{TransomPci, TransomRegisters};
pub use share::{TransomAttr, TransomDir, TransomEntry, TransomFile, TransomFs};
pub use table::TransomPlatform;
