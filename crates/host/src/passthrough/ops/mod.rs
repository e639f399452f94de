//! The operations, one file for each; twins share one.
//!
//! Each is a method of [`Passthrough`](super::Passthrough) that [`filesystem`](super::filesystem) calls under its FUSE name.

mod forget;
mod getattr;
mod init;
mod lookup;
mod open;
mod opendir;
mod read;
mod readdir;
mod readdirplus;
mod release;
mod statfs;
