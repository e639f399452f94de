//! What a file system must do: the list of file-system cases, and pjdfstest beside it.
//!
//! A case is written against [`client::Client`], so that one list runs on a bare directory (the oracle), in a Linux
//! guest over any daemon, and on clients that never see a kernel. [`runner`] runs it, [`report`] writes the results,
//! [`compare`] says where two of them differ, [`known`] lists the differences that are explained.
//!
//! [`fsx`] does random things to one file, [`programs`] random things of two users to a tree; [`tools`] are what tests
//! of coherence start in guests.
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
pub mod stop;
pub mod syscalls;
pub mod tools;
