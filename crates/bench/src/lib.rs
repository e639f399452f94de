//! Side-by-side measurements of virtio-fs daemons: `transom bench`.
//!
//! [`workload`] is what is done, on any [`place`](workload::place); [`guests`] are under whom, in rounds that alternate
//! between the [`daemon`]s and the bare directory; [`suite`] says which workloads and how large. [`round_trip`] drives
//! daemons without a guest, [`cost`] counts what they execute for each request, [`library`] drives them by the guest
//! library's own operations, [`fio`] by that program with and without DAX, [`memory`] looks at what inodes cost.
//! [`report`] keeps every sample and says how the daemons compare, or that they cannot be told apart; [`limits`] is
//! what the machine itself can do. [`commands`] is the command line.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod commands;
pub mod cost;
pub mod daemon;
pub mod fio;
pub mod guests;
pub mod library;
pub mod limits;
pub mod memory;
pub mod process;
pub mod progress;
pub mod report;
pub mod round_trip;
pub mod suite;
pub mod workload;

/// The name of a choice, as on the command line and in the tables.
pub(crate) fn name_of(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}
