//! Transom's host side: a FUSE server over a host directory, for any transport that can supply a request's buffers.
//!
//! [`server`] turns each request into one call of a [`server::FileSystem`]; [`passthrough`] is the file system that
//! serves a directory; [`window`] shows the guest the host's page cache; [`migration`] has the format in which a
//! session is carried over to another daemon, [`journal`] what survives a process that is killed, [`survival`] which
//! features go together with either, [`notifications`] what waits for a guest that is told of changes.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod acl;
pub mod clock;
mod credentials;
pub mod group;
pub mod idmap;
pub mod journal;
mod locks;
pub mod metrics;
pub mod migration;
pub mod notifications;
pub mod passthrough;
pub mod replay;
pub mod server;
mod stripe;
pub mod survival;
pub mod sysfd;
pub mod window;
pub mod xattrmap;

pub use rustix::io::Errno;
/// For [`unserved`].
#[doc(hidden)]
pub use transom_wire::{each_request, operation};
