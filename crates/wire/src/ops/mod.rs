//! The structures of operations: one file for each operation or family.
//!
//! Without a file: LOOKUP, SYMLINK, UNLINK, RMDIR and REMOVEXATTR send names only; READLINK and DESTROY send nothing,
//! and READLINK's reply is bytes; NOTIFY_REPLY is not read.

pub mod access;
pub mod bmap;
pub mod copy_file_range;
pub mod create;
pub mod fallocate;
pub mod flush;
pub mod forget;
pub mod fsync;
pub mod getattr;
pub mod init;
pub mod interrupt;
pub mod ioctl;
pub mod link;
pub mod lk;
pub mod lseek;
pub mod mkdir;
pub mod mknod;
pub mod open;
pub mod poll;
pub mod read;
pub mod release;
pub mod removemapping;
pub mod rename;
pub mod setattr;
pub mod setupmapping;
pub mod statfs;
pub mod statx;
pub mod syncfs;
pub mod write;
pub mod xattr;
