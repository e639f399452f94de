//! Directory entries in the host's own format, in a buffer of the caller's.
//!
//! `rustix` hands them out one by one and takes the buffer back, so that entries which outlive the call have to be
//! copied.

#![expect(unsafe_code, reason = "rustix has no getdents64 that leaves the entries in the caller's buffer")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::checked_len;

/// Fills the beginning of `buffer` with `struct linux_dirent64` and returns how many bytes they take; 0 at the end of
/// the directory. Blocks on the host's file system.
///
/// # Errors
///
/// EINVAL if the next entry does not fit, ENOENT if the directory was removed. Source: getdents64(2).
pub fn read(dir: impl AsFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    // SAFETY: the call writes at most `buffer.len()` bytes to the buffer, which is borrowed for writing, and bytes of
    // any value are valid there.
    let read =
        unsafe { libc::syscall(libc::SYS_getdents64, dir.as_fd().as_raw_fd(), buffer.as_mut_ptr(), buffer.len()) };
    checked_len(read as libc::ssize_t)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn a_buffer_that_is_too_small_is_refused_and_the_end_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path(), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        assert_eq!(read(&fd, &mut [0; 8]), Err(Errno::INVAL));
        let mut buffer = [0; 1024];
        assert!(read(&fd, &mut buffer).unwrap() > 0, "the dots");
        assert_eq!(read(&fd, &mut buffer), Ok(0));
    }
}
