//! System calls on descriptors, with safe and typed interfaces.
//!
//! Calls that rustix offers with a suitable signature are used from there. This module adds the rest: file data to and
//! from guest memory ([`vectored`]), directory entries ([`dents`]), file handles ([`handle`]), operations on `O_PATH`
//! descriptors ([`procfd`], [`path`]), `statx` with mount identifiers ([`stat`]), inode attributes ([`inode_attr`]),
//! locks owned by an open file description ([`ofd`]), what a dead process has left open ([`left`]), and file-system
//! state of a single thread ([`thread_fs`]). Only the last keeps state, in the thread.

pub mod dents;
pub mod handle;
pub mod inode_attr;
pub mod left;
pub mod ofd;
pub mod path;
pub mod procfd;
pub mod stat;
pub mod thread_fs;
pub mod vectored;

pub use handle::{FileHandle, HANDLE_LEN_MAX, RawFileHandle};
pub use left::LeftDescriptors;
pub use procfd::ProcFds;
pub use stat::MountId;

use rustix::io::Errno;

/// Converts the result of a libc call that returns -1 and sets `errno`.
fn checked(returned: libc::c_int) -> Result<libc::c_int, Errno> {
    if returned == -1 { Err(last_errno()) } else { Ok(returned) }
}

/// Like [`checked`], for a call that returns a number of bytes.
fn checked_len(returned: libc::ssize_t) -> Result<usize, Errno> {
    usize::try_from(returned).map_err(|_| last_errno())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
