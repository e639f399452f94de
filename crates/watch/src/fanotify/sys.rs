//! The system calls of fanotify, which rustix does not have.

#![expect(unsafe_code, reason = "fanotify_init and fanotify_mark are not in rustix")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use rustix::io::Errno;

/// The changes that are reported. Opening and reading are not among them, and neither are stores through mappings,
/// which raise no event.
const MASK: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_RENAME
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_CLOSE_WRITE
    | libc::FAN_ONDIR;

/// Opens a group whose events name parents, names and objects, with a queue of bounded length.
pub(super) fn open() -> Result<OwnedFd, Errno> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | libc::FAN_REPORT_DFID_NAME_TARGET;
    // SAFETY: the call takes no pointer.
    let fd = checked(unsafe { libc::fanotify_init(flags, libc::O_RDONLY.cast_unsigned()) })?;
    // SAFETY: the call has just returned this descriptor, which no one else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Marks the file system of `fd`, which may be `O_PATH`.
pub(super) fn mark_file_system(group: impl AsFd, fd: impl AsFd) -> Result<(), Errno> {
    let (group, fd) = (group.as_fd().as_raw_fd(), fd.as_fd().as_raw_fd());
    // A null path would stand for the file of the descriptor, but the kernel does not accept O_PATH that way.
    let path = std::ffi::CString::new(format!("/proc/self/fd/{fd}")).map_err(|_| Errno::INVAL)?;
    let how = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: `path` is a string that ends with NUL and lives until the call returns.
    checked(unsafe { libc::fanotify_mark(group, how, MASK, libc::AT_FDCWD, path.as_ptr()) }).map(drop)
}

/// Marks the directory `dir`, which may be `O_PATH`, and what has a name in it.
pub(crate) fn mark_directory(group: impl AsFd, dir: impl AsFd) -> Result<(), Errno> {
    change_directory_mark(group, dir, libc::FAN_MARK_ADD)
}

/// Removes the mark of the directory `dir`, which may be `O_PATH`.
pub(crate) fn unmark_directory(group: impl AsFd, dir: impl AsFd) -> Result<(), Errno> {
    change_directory_mark(group, dir, libc::FAN_MARK_REMOVE)
}

fn change_directory_mark(group: impl AsFd, dir: impl AsFd, how: libc::c_uint) -> Result<(), Errno> {
    let (group, dir) = (group.as_fd().as_raw_fd(), dir.as_fd().as_raw_fd());
    let (how, mask) = (how | libc::FAN_MARK_ONLYDIR, MASK | libc::FAN_EVENT_ON_CHILD);
    // A null path would stand for the directory itself, but the kernel does not accept O_PATH that way.
    // SAFETY: the path is a constant that ends with NUL.
    checked(unsafe { libc::fanotify_mark(group, how, mask, dir, c".".as_ptr()) }).map(drop)
}

fn checked(result: i32) -> Result<i32, Errno> {
    if result >= 0 { Ok(result) } else { Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}
