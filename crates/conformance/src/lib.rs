//! What a file system must do: the list of file-system cases, and pjdfstest.
//!
//! A case is written against [`client::Client`], so that one list runs on a bare directory (the oracle), in a Linux
//! guest over any daemon, and on clients without a kernel. [`runner`] runs the list, [`report`] writes the results,
//! [`compare`] shows where two results differ, and [`known`] lists the explained differences.
//!
//! [`split`] runs the list on two guests of one directory, of which one acts and the other looks.
//!
//! [`fsx`] runs random operations on one file, [`programs`] runs random operations of two users on a tree, and
//! [`tools`] are the programs that coherence tests start in guests.
//!
//! [`memfs`] is a file system in memory, for tests of servers and their clients.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod case;
pub mod cases;
pub mod client;
pub mod compare;
pub mod fs;
pub mod fsx;
pub mod known;
pub mod memfs;
pub mod pjdfstest;
pub mod programs;
pub mod report;
pub mod runner;
pub mod split;
pub mod stop;
pub mod syscalls;
pub mod tools;
