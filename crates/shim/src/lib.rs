//! Views of host files: descriptors whose mappings show the file itself, but whose size is practically unlimited.
//!
//! Some front ends refuse to map a range that ends past the end of a file. A view is a file of a private, unattached
//! FUSE file system. It reports a size of [`VIEW_SIZE`] bytes, and the kernel passes its mappings through to the host's
//! file (FUSE_PASSTHROUGH), so that both share one page cache and the file itself is not changed. A small process
//! serves that file system, because registering a file needs CAP_SYS_ADMIN, which the daemon drops.
//!
//! [`Shim`] is the user's handle to that process. In the process, `start` sets it up, `mount` creates the file system,
//! `isolation` and `seccomp` drop privileges, `opener` answers the user, and `server` answers the kernel; both share
//! `nodes`. `channel`, `backing` and `fork` wrap system calls.
//!
//! The process also guards files against truncation by others while they are mapped: `guards` has the marks, `listener`
//! decides about accesses by others, based on what `caller` finds out about them, and `fanotify` wraps system calls.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod backing;
mod caller;
mod channel;
mod error;
mod fanotify;
mod fork;
mod guards;
mod isolation;
mod listener;
mod mount;
mod nodes;
mod opener;
mod seccomp;
mod server;
mod shim;
mod start;

pub use error::{ShimError, StartError, Step};
pub use nodes::VIEW_SIZE;
pub use shim::{Guard, Shim};
