//! ioctl(2) by number, as any program may make it, and descriptors by dup(2).
#![expect(unsafe_code, reason = "ioctl with any number has no safe wrapper")]

use std::os::fd::{AsRawFd, IntoRawFd};

use rustix::io::fcntl_dupfd_cloexec;

use super::{fd, raw::last_errno};
use crate::client::{Handle, Result};

/// A second descriptor of the same open file.
pub fn duplicate(handle: Handle) -> Result<Handle> {
    Ok(Handle(fcntl_dupfd_cloexec(fd(handle), 3)?.into_raw_fd() as u64))
}

/// Makes the request `number` with a pointer to `value`, and returns the number that is there afterwards.
///
/// Requests with more data find zeros after the value.
pub fn ioctl(handle: Handle, number: u32, value: u32) -> Result<u32> {
    let mut data = [0u32; 128];
    data[0] = value;
    // SAFETY: the data are 512 bytes that outlive the call. A request's number tells how many bytes it moves; those
    // that programs make move 28 at the most, and a file system that ignores the number moves what the number's kernel
    // structure has, none of which is larger.
    let result = unsafe { libc::ioctl(fd(handle).as_raw_fd(), number.into(), data.as_mut_ptr()) };
    if result < 0 { Err(last_errno()) } else { Ok(data[0]) }
}

/// The attributes of the inode (`FS_IOC_GETFLAGS`).
pub fn flags(handle: Handle) -> Result<u32> {
    ioctl(handle, libc::FS_IOC_GETFLAGS as u32, 0)
}
