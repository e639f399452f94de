//! Views of host files: descriptors whose mappings go to the file itself, but whose size has no end.
//!
//! Some front ends map no range that ends behind the end of a file. A view is a file of a private FUSE file system that
//! is attached nowhere; it claims [`VIEW_SIZE`] bytes, and the kernel passes its mappings through to the host's file
//! (FUSE_PASSTHROUGH), so that there is one page cache and the file itself is never touched. A small process serves
//! that file system, since registering a file takes CAP_SYS_ADMIN, which the daemon does not keep.
//!
//! [`Shim`] is that process as its user sees it. In the process: `start` sets it up, `mount` makes the file system,
//! `isolation` and `seccomp` take everything away that is not needed, `opener` answers the user, `server` the kernel;
//! both share `nodes`. `channel`, `backing` and `fork` are the system calls.
//!
//! Besides, the process guards files against being made shorter by others while somebody maps them: `guards` are the
//! marks that the user asked for, `listener` decides about what others do, after a look at them by `caller`; `fanotify`
//! is the system calls.

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
