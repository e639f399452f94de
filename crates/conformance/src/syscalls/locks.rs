//! Locks on ranges of bytes through `fcntl`.
#![expect(unsafe_code, reason = "fcntl with struct flock has no safe wrapper")]

use std::os::fd::{AsRawFd, BorrowedFd};

use super::raw::last_errno;
use crate::client::{Lock, LockKind, LockOwner, Result};

pub(super) fn set(file: BorrowedFd<'_>, owner: LockOwner, lock: Lock, is_waiting: bool) -> Result<()> {
    let command = match (owner, is_waiting) {
        (LockOwner::Process, false) => libc::F_SETLK,
        (LockOwner::Process, true) => libc::F_SETLKW,
        (LockOwner::Description, false) => libc::F_OFD_SETLK,
        (LockOwner::Description, true) => libc::F_OFD_SETLKW,
    };
    call(file, command, lock).map(drop)
}

pub(super) fn query(file: BorrowedFd<'_>, owner: LockOwner, lock: Lock) -> Result<(Lock, i32)> {
    let command = match owner {
        LockOwner::Process => libc::F_GETLK,
        LockOwner::Description => libc::F_OFD_GETLK,
    };
    let found = call(file, command, lock)?;
    let kind = match found.l_type.into() {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        _ => LockKind::None,
    };
    Ok((Lock { kind, start: found.l_start as u64, len: found.l_len as u64 }, found.l_pid))
}

fn call(file: BorrowedFd<'_>, command: libc::c_int, lock: Lock) -> Result<libc::flock> {
    let kind = match lock.kind {
        LockKind::Read => libc::F_RDLCK,
        LockKind::Write => libc::F_WRLCK,
        LockKind::None => libc::F_UNLCK,
    };
    let mut raw = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: lock.start as libc::off_t,
        l_len: lock.len as libc::off_t,
        l_pid: 0,
    };
    // SAFETY: each of the six commands takes a pointer to a `struct flock`, which `raw` is and outlives the call.
    if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut raw) } == 0 { Ok(raw) } else { Err(last_errno()) }
}
