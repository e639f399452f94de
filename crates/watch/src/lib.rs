//! Changes that happen in a directory tree of this host, whoever makes them.
//!
//! [`Watch::open`] chooses the strongest [`Strength`] that the kernel, the file system and the privileges allow, and
//! [`Watch::read`] passes each [`Event`] on. A [`Change`] says that something happened to a name or an object, and who
//! did it as far as that is known. It does not say what is there now: events are merged and late, so a consumer looks.
//!
//! fanotify marks a whole file system. [`Watch::read`] reports all of it, and a consumer drops changes in directories
//! that it does not know. What nobody has looked up, nobody has cached.
//!
//! `fanotify` wraps the system calls and reads the kernel's records, `handle` names and opens objects.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod change;
mod error;
mod fanotify;
mod handle;
mod watch;

pub use change::{Author, Change, ChangeKind, Event, Object, Place};
pub use error::WatchError;
pub use handle::{HandleRef, ObjectHandle};
pub use watch::{Options, Strength, Watch};
