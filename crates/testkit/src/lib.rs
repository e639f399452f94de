//! What the tests of every other crate stand on: the list of file-system cases, and pjdfstest beside it.
//!
//! A case is written against [`client::Client`], so that one list runs on a bare directory (the oracle), in a Linux guest
//! over any daemon, and on clients that never see a kernel. [`runner`] runs it, [`report`] writes the results,
//! [`compare`] says where two of them differ.
//!
//! [`fsx`] does random things to one file, [`programs`] random things of two users to a tree, [`tools`] are what tests of coherence start in guests.
//!
//! For the daemon there are a guest and a VMM without either ([`frontend`]) and a file system in memory ([`memfs`]);
//! [`fuzzing`] has what the fuzzers run, [`allocations`] counts what a path allocates.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod allocations;
pub mod case;
pub mod cases;
pub mod client;
pub mod compare;
pub mod frontend;
pub mod fs;
pub mod fsx;
pub mod fuzzing;
pub mod memfs;
pub mod pjdfstest;
pub mod programs;
pub mod report;
pub mod runner;
pub mod syscalls;
pub mod tools;
