//! System calls that have no safe wrapper: descriptors by number, descriptor tables of threads, and two calls by path.
#![expect(unsafe_code, reason = "descriptors as numbers, and calls that rustix lacks or changes on the way")]

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use rustix::thread::UnshareFlags;

use crate::client::{Access, Errno, Result};

/// The error of the call just made.
pub(super) fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

fn check(result: i64) -> Result<()> {
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The descriptor of a handle; a handle that was closed answers `EBADF` at its next use.
pub(super) fn borrow(number: i32) -> BorrowedFd<'static> {
    // A number below zero would be no descriptor at all.
    let number = number.max(0);
    // SAFETY: the number is not -1. Handles come from `open`, are closed once, by `File`, and a use after that is
    // the plain error EBADF or another test file: nothing in this program keeps memory safe by a descriptor.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Closes a descriptor and tells what the file system said.
pub(super) fn close(number: i32) -> Result<()> {
    // SAFETY: takes no pointer; the number is a handle's, which its `File` closes once.
    check(unsafe { libc::close(number) }.into())
}

/// Gives this thread a copy of the descriptor table, and its own current directory and mask, as a fork would.
pub fn own_descriptors() -> Result<()> {
    // SAFETY: the table is copied, so every descriptor that this thread owns stays valid in it. What other threads
    // open afterwards this thread never uses: it is started for one case or one process of a case.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES | UnshareFlags::FS) }
}

/// Closes every descriptor of this thread's own table.
pub(super) fn close_all() -> Result<()> {
    // SAFETY: the caller's thread has a table of its own (`own_descriptors`), does nothing more, and owns nothing that
    // would close one of these numbers again.
    check(unsafe { libc::syscall(libc::SYS_close_range, 0, libc::c_uint::MAX, 0) })
}

/// Whether the kernel lets this thread link a file by its descriptor alone.
pub(super) fn may_link_by_descriptor() -> bool {
    let capability = rustix::thread::CapabilitySet::DAC_READ_SEARCH;
    rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}

fn c_path(path: &[u8]) -> Result<CString> {
    CString::new(path).map_err(|_| Errno::INVAL)
}

/// `truncate`, by path.
pub(super) fn truncate(path: &[u8], len: u64) -> Result<()> {
    let path = c_path(path)?;
    // SAFETY: the path is a string that ends in NUL and outlives the call.
    check(unsafe { libc::truncate64(path.as_ptr(), len as i64) }.into())
}

/// `faccessat2`, so that the kernel judges and not the C library.
pub(super) fn access(path: &[u8], access: Access, is_effective: bool) -> Result<()> {
    let path = c_path(path)?;
    let flags = if is_effective { libc::AT_EACCESS } else { 0 };
    // SAFETY: the path is a string that ends in NUL and outlives the call; the other arguments are numbers.
    check(unsafe { libc::syscall(libc::SYS_faccessat2, libc::AT_FDCWD, path.as_ptr(), access.bits(), flags) })
}
