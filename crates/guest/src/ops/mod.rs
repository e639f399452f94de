//! One file for each operation, as in the wire formats and on the host: the request that a client sends, and how it
//! reads the reply.
//!
//! Each is a method of [`Session`](crate::session::Session), sends one request unless it says otherwise, and blocks
//! until the reply has come. Errors are the server's, or: EIO for an impossible reply (it is counted) and for a broken
//! device, ENOTCONN for a device that is gone, ENOMEM if memory for the request runs out, EINTR for a request that was
//! interrupted. An operation that Linux can do without is sent only once if the server does not know it; each such
//! operation documents its fallback. For others ENOSYS is the result each time.

mod access;
mod copy_file_range;
mod create;
mod fallocate;
mod flush;
mod fsync;
mod getattr;
mod ioctl;
mod link;
mod lk;
mod lookup;
mod lseek;
mod mkdir;
mod mknod;
mod open;
mod poll;
mod read;
mod readdir;
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
mod unlink;
mod write;
mod xattr;

pub use read::PendingRead;
pub use readdir::{DirEntry, Entries};
pub use write::PendingWrite;
