//! The DAX window: which range of which file is mapped where.
//!
//! The window is an array of [`RANGE_LEN`] ranges, and a mapping covers one range. File offset and window offset are
//! both multiples of it, so that either side can use 2 MiB pages. [`Window`] is our own record of it, against which
//! everything is checked before a request goes to the front end. [`channel`] carries these requests, [`front_end`]
//! lists the capabilities of each front end, and [`policy`] selects the files that the guest is told to map.
//!
//! Locks: one mutex around the record, never held across a request to the front end or a system call. A range that is
//! being changed is marked, and other users of it wait. A thread for each connection talks to the front end, one
//! request after the other; requests of the guest only wait for that thread. Those that wait together share the barrier
//! that shows that their mappings took effect. A stop of the device ends their wait, because a front end that stops a
//! device may read nothing from the back end until the device has stopped.

pub mod channel;
mod file;
mod front_end;
mod map;
mod policy;
mod ranges;
mod shmem_worker;

#[cfg(test)]
mod barrier_test;
#[cfg(test)]
mod record_test;
#[cfg(test)]
mod window_test;

pub use channel::{Channel, ChannelError, Mapping};
pub use file::{FileIdentity, MappedFile, PaddedFiles};
pub use front_end::FrontEnd;
pub use map::{FileUsage, Window};
pub use policy::DaxPolicy;
pub use transom_wire::window::RANGE_LEN;

/// log2 of the alignment of file and window offsets that INIT announces.
pub const MAP_ALIGNMENT_LOG2: u16 = RANGE_LEN.trailing_zeros() as u16;
