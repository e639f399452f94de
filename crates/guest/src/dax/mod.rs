//! The DAX window: file pages in the host's page cache, mapped into the guest in ranges of 2 MiB.
//!
//! A [`Window`] is one shared-memory region, divided into ranges. An inode's [`Ranges`] record where parts of the file
//! are mapped, and [`Inode::pin`](crate::volume::Inode::pin) lends a range for as long as a [`Pin`] lives. Code that
//! puts pages of a range into page tables registers [`PageTables`], which are asked to remove them before a range is
//! unmapped. [`reclaim`] takes ranges back, [`admission`] decides which part of a file deserves a range.
//!
//! The size of a guest's page ([`Platform::PAGE_SIZE`](crate::Platform::PAGE_SIZE)) decides how finely files are
//! faulted, protected and marked as stored to. The server knows nothing of it: what it maps are ranges of 2 MiB, at
//! offsets that every alignment that it may ask for divides.
//!
//! Locks, outermost first: an inode's ranges, the window's pool. Both are held for short sections, during which no
//! request, hook or copy runs.

mod admission;
pub mod backing;
pub mod entry;
pub mod fault;
pub mod mapped;
mod memory;
mod options;
mod pin;
mod ranges;
mod reclaim;
mod transfer;
mod unflushed;
mod window;
mod worker;

#[cfg(all(test, not(feature = "loom")))]
mod admission_test;
#[cfg(all(test, not(feature = "loom")))]
mod fake_test;
#[cfg(all(test, not(feature = "loom")))]
mod memory_test;
#[cfg(all(test, not(feature = "loom")))]
mod model_test;
#[cfg(all(test, not(feature = "loom")))]
mod page_size_test;
#[cfg(all(test, not(feature = "loom")))]
mod sync_test;
#[cfg(all(test, not(feature = "loom")))]
mod unflushed_test;

pub use memory::{MappedWindow, WindowMemory};
pub use options::{Dax, DaxOptions};
pub use pin::{Access, Change, PageTables, Pin};
pub(crate) use ranges::Blocked;
pub use ranges::Ranges;
pub use transom_wire::window::{RANGE_LEN, WINDOW_ID};
pub use window::{Window, WindowCounts};
pub(crate) use worker::Worker;
