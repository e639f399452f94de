//! The operations, each or each family in a file of its own.
//!
//! Each implements [`Serve`](crate::server::Serve) for [`Passthrough`](super::Passthrough).

mod access;
mod copy_file_range;
mod create;
mod fallocate;
mod flush;
mod forget;
mod fsync;
mod getattr;
mod init;
mod ioctl;
mod link;
mod locks;
mod lookup;
mod lseek;
mod mkdir;
mod mknod;
mod open;
mod opendir;
mod read;
mod readdir;
mod readdirplus;
mod readlink;
mod release;
mod removemapping;
mod rename;
mod setattr;
mod setupmapping;
mod statfs;
mod statx;
mod symlink;
mod syncfs;
mod tmpfile;
mod unlink;
mod unserved;
mod write;
mod xattr;
