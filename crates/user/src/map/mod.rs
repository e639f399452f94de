//! Files mapped into this process.
//!
//! [`MapFile::map`] gives a [`Mapping`]: addresses at which a file's bytes lie, those of the host's page cache, fetched
//! 2 MiB at a time when they are touched. What is shared is seen by the host and by every guest at once.
//!
//! # Touching what is not there
//!
//! [`Mapping::read_at`] and [`Mapping::write_at`] answer EIO beyond the end of the file, where others have cut the file
//! off, and where the daemon is gone. Loads and stores by address raise SIGBUS there, with the address, as for a file
//! that the kernel maps: at the handler that the program had installed before its first mapping, or one that it
//! installs later and that calls the one that was there; without one it ends the process. It is never other data. What
//! a program does by address and wants an error for goes through [`fault::copy`](crate::fault::copy::copy).
//!
//! # Too many mappings
//!
//! Linux allows a process 65,530 mappings (`vm.max_map_count`). A mapped file takes one for what is shown of it in one
//! piece, 2 MiB at a time, and one for each copy of a private mapping that lies alone. Where there are too many, what
//! else is shown of the file is hidden, to be fetched again when it is touched; where that does not help, touching is
//! the error of what is not there. What a file loses is always taken away: a process whose kernel has not the memory to
//! do even that ends with SIGABRT.
//!
//! # Rules
//!
//! - A buffer for a call of this library does not lie in a mapping: the call may hold what serving the fault needs. The
//!   same holds for system calls: the kernel answers EFAULT where nothing is mapped yet.
//! - SIGSEGV and SIGBUS are not blocked in threads that touch mappings.
//! - A child made by fork(2) does not touch them.

mod access;
mod bits;
mod flush;
#[cfg(test)]
mod map_test;
mod mapping;
mod room;
mod service;
mod space;
mod view;

pub use mapping::{MapFile, Mapping, Protection, Sharing};
