//! The version table: shared memory by which guests know whether what they cache is still true.
//!
//! The daemons of a coherence group share one table, and each guest maps it for reading. A daemon that has changed
//! something raises the slots of the inodes that it changed before it replies ([`Writer`]). A guest notes the clock
//! before it sends a request ([`Reader::now`]), keeps it with the reply, and may use what it cached for as long as
//! [`Reader::is_valid`] says so: one load of the slot, and one of the epoch.
//!
//! A reply may say how the guest's own change has raised a slot; [`OwnChanges`] keeps that apart from changes by
//! others.
//!
//! [`layout`] describes the memory. Nothing in it is allocated: an inode's slot follows from a hash of its number, and
//! two inodes that share a slot cost a needless request, never a stale answer.
//! [Decision 17](../../../docs/decisions/0017-version-table.md) has the reasons.

#![no_std]
#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod atomic;
mod error;
mod hash;
pub mod layout;
#[cfg(feature = "std")]
pub mod location;
#[cfg(target_endian = "little")]
mod mirror;
mod own;
mod reader;
mod region;
#[cfg_attr(not(target_endian = "little"), expect(dead_code, reason = "only a writer changes slots"))]
mod stamp;
#[cfg(target_endian = "little")]
mod writer;

#[cfg(all(test, feature = "loom"))]
mod loom_test;

pub use atomic::AtomicU64;
pub use error::TableError;
pub use hash::{Keys, Slot};
pub use own::{OwnChanges, Raised};
pub use reader::{Moment, Reader};
pub use region::Region;
pub use stamp::Stamp;
#[cfg(target_endian = "little")]
pub use {mirror::Mirror, writer::Writer};
