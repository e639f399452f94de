//! Registers files with the kernel for FUSE files to be passed through to.

#![expect(unsafe_code, reason = "ioctls that rustix has not")]

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
    /// As it stands in the answer to OPEN.
    pub(crate) fn number(&self) -> i32 {
        self.0
    }
}

/// Registers `file` with the session of `device`, which is `/dev/fuse`.
///
/// Errors: EPERM without CAP_SYS_ADMIN in the first user namespace, ELOOP for a file system on top of too many others,
/// EOPNOTSUPP for one whose files can not be passed through to.
pub(crate) fn open(device: impl AsFd, file: BorrowedFd<'_>) -> Result<BackingId, Errno> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: the request reads one `BackingMap` behind the pointer, which `map` is, and keeps no pointer.
    match unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BACKING_OPEN as libc::Ioctl, &raw const map) } {
        id if id > 0 => Ok(BackingId(id)),
        0 => Err(Errno::IO),
        _ => Err(last_errno()),
    }
}

/// Ends a registration. FUSE files that are open keep the file.
pub(crate) fn close(device: impl AsFd, id: BackingId) -> Result<(), Errno> {
    let number = id.0.cast_unsigned();
    // SAFETY: the request reads one u32 behind the pointer, which `number` is, and keeps no pointer.
    match unsafe { libc::ioctl(device.as_fd().as_raw_fd(), BACKING_CLOSE as libc::Ioctl, &raw const number) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
