//! The library's errors as those of system calls, which have the same numbers.

use transom_conformance::client::Errno;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

pub(crate) fn from_guest(errno: transom_guest::Errno) -> Errno {
    Errno::from_raw_os_error(errno.raw())
}
