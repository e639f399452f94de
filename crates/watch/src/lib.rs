//! Changes that happen in a directory tree of this host, whoever makes them.
//!
//! [`Watch::open`] chooses the strongest [`Strength`] that the kernel, the file system and the privileges allow, and
//! [`Watch::read`] passes each [`Event`] on. A [`Change`] says that something happened to a name or an object, and who
//! did it as far as that is known. It does not say what is there now: events are merged and late, so a consumer looks.
//!
//! fanotify marks a whole file system for a privileged process, and [`Watch::read`] reports all of it. For others it
//! marks the [`Directories`] that they name. [`Tree`] keeps what is below one
//! directory; a consumer that knows its inodes by handle can instead drop what it does not know, since what nobody has
//! looked up, nobody has cached. [`Watcher`] is the thread that reads, and a [`Consumer`] gets what it read.
//!
//! [`InodeNumbers`] says which inodes the objects of events are.
//!
//! `fanotify` and `inotify` wrap the system calls and read the kernel's messages, `handle` names and opens objects,
//! `journal` recognises this process's changes where the kernel does not say who made them.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod change;
mod error;
mod fanotify;
mod handle;
mod inotify;
mod journal;
mod numbers;
mod tree;
mod watch;
mod watcher;

pub use change::{Author, Change, ChangeKind, EntryName, Event, Object};
pub use error::WatchError;
pub use handle::{HandleRef, ObjectHandle};
pub use journal::{Announcement, ChangeOutcome, InProgress, Journal};
pub use numbers::InodeNumbers;
pub use tree::Tree;
pub use watch::{Directories, Options, Strength, Watch};
pub use watcher::{Consumer, Watcher};
