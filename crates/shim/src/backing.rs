//! Registers host files with the kernel as backing files of FUSE passthrough.

#![expect(unsafe_code, reason = "ioctls that rustix does not have")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use rustix::io::Errno;
use transom_wire::backing::{BACKING_CLOSE, BACKING_OPEN, BackingMap};

/// A registered file. It stays open in the kernel until [`close`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BackingId(i32);

impl BackingId {
    /// Returns the id as used in the reply to OPEN.
    pub(crate) fn number(&self) -> i32 {
        self.0
    }
}

/// Registers `file` with the session of `device`, an open `/dev/fuse`.
///
/// # Errors
///
/// Returns EPERM without CAP_SYS_ADMIN in the initial user namespace, ELOOP if the file system is stacked on too many
/// others, and EOPNOTSUPP if its files cannot be backing files.
pub(crate) fn open(device: impl AsFd, file: BorrowedFd<'_>) -> Result<BackingId, Errno> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the request reads one `BackingMap` at the pointer, which `map` is, and keeps no pointer.
    match unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BACKING_OPEN as libc::Ioctl, &raw const map) } {
        id if id > 0 => Ok(BackingId(id)),
        0 => Err(Errno::IO),
        _ => Err(last_errno()),
    }
}

/// Ends a registration. Open FUSE files keep the backing file.
pub(crate) fn close(device: impl AsFd, id: BackingId) -> Result<(), Errno> {
    let number = id.0.cast_unsigned();
    // SAFETY: the request reads one u32 at the pointer, which `number` is, and keeps no pointer.
    match unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BACKING_CLOSE as libc::Ioctl, &raw const number) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
