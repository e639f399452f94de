//! Closes a descriptor and returns the file system's error, which a drop would ignore.

#![expect(unsafe_code, reason = "neither the standard library nor rustix closes with a result in safe code")]

use std::os::fd::{IntoRawFd, OwnedFd};

use crate::Errno;

/// Closes `fd`, whatever the result. Errors: EIO, ENOSPC, EDQUOT of earlier writes.
pub(super) fn close(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the number was owned by `fd`, which is consumed: nobody else closes it or relies on it.
    match unsafe { libc::close(fd.into_raw_fd()) } {
        0 => Ok(()),
        _ => match Errno::from_io_error(&std::io::Error::last_os_error()) {
            // Linux closes the descriptor before the call can be interrupted.
            None | Some(Errno::INTR) => Ok(()),
            Some(errno) => Err(errno),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_closed() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        close(writer).unwrap();
        assert_eq!(rustix::io::read(&reader, &mut [0]), Ok(0));
    }
}
