//! Side-by-side measurements of virtio-fs daemons.
//!
//! [`workload`] is what is measured; it runs on any directory and prints JSON lines. [`guest`], [`round_trip`] and
//! [`memory`] put a [`daemon`] under it, or drive the daemon without a guest, alternating between daemons; [`library`] drives it through
//! the guest library; [`fio`] runs that program in guests with and without DAX; [`report`]
//! keeps every sample and says how the daemons compare, or that they cannot be told apart; [`limits`] is what the
//! machine itself can do.

pub mod daemon;
pub mod fio;
pub mod guest;
pub mod library;
pub mod limits;
pub mod memory;
pub mod process;
pub mod progress;
pub mod report;
pub mod round_trip;
pub mod workload;
