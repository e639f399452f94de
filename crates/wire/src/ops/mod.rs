//! One file for each operation: its arguments and its reply.
//!
//! Operations without a structure of their own: LOOKUP, SYMLINK, UNLINK, RMDIR and REMOVEXATTR carry names; READLINK
//! and DESTROY carry nothing.

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
