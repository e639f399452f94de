//! Files mapped into this process.
//!
//! [`MapFile::map`] returns a [`Mapping`]: addresses that show a file's bytes in the host's page cache, fetched 2 MiB
//! at a time when they are touched. Stores to shared mappings are visible to the host and to every guest at once.
//!
//! # Inaccessible pages
//!
//! Pages past the end of the file are inaccessible, also after others truncated it, and so are pages that cannot be
//! fetched because the daemon is gone. [`Mapping::read_at`] and [`Mapping::write_at`] then return EIO. Loads and stores
//! by address raise SIGBUS with the address, as for a file that the kernel maps. The signal goes to the handler that
//! the program installed before its first mapping, or to one installed later that calls its predecessor; without a
//! handler it ends the process. An access never finds other data. For accesses by address that return an error, use
//! [`fault::copy`](crate::fault::copy::copy).
//!
//! # Too many mappings
//!
//! Linux allows a process 65,530 mappings (`vm.max_map_count`). A mapped file uses one for each contiguous part that is
//! shown, up to 2 MiB, and one for each isolated copy of a private mapping. If the limit is reached, the other shown
//! parts of the file are hidden, and fetched again when they are touched; if that does not help, the access fails as
//! for an inaccessible page. Pages that a file loses are always removed: if the kernel has no memory even for that, the
//! process ends with SIGABRT.
//!
//! # Rules
//!
//! - Buffers passed to this library must not lie in a mapping, because the call may hold locks that serving the fault
//!   needs. The same holds for system calls: the kernel returns EFAULT for pages that are not mapped yet.
//! - Threads that touch mappings must not block SIGSEGV and SIGBUS.
//! - A child made by fork(2) must not touch mappings.

mod access;
mod area;
mod bits;
mod flush;
mod free_list;
#[cfg(test)]
mod map_test;
mod mapping;
mod room;
mod service;
mod space;
mod view;

pub use mapping::{MapFile, Mapping, Protection, Sharing};
