//! Side-by-side measurements of virtio-fs daemons: `transom bench`.
//!
//! [`workload`] is the set of file operations, which run on any [`place`](workload::place). [`guests`] run them in
//! rounds that alternate between the [`daemon`]s and the bare directory. [`suite`] selects workloads and sizes.
//! [`round_trip`] drives daemons without a guest, [`cost`] counts what they execute for each request, [`library`]
//! measures the guest library's operations, [`fio`] runs that program with and without DAX, [`memory`] measures the
//! cost of inodes, and [`polling`] compares settings of `--poll-us`. [`report`] keeps every sample and compares the
//! daemons, or states that they cannot be distinguished.
//! [`limits`] measures the machine itself. [`commands`] is the command line.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod commands;
pub mod cost;
pub mod daemon;
pub mod fio;
pub mod guests;
mod latency;
pub mod library;
pub mod limits;
pub mod memory;
pub mod polling;
pub mod process;
pub mod progress;
pub mod report;
pub mod round_trip;
pub mod suite;
pub mod workload;

/// Returns the name of a choice, as on the command line and in the tables.
pub(crate) fn name_of(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
