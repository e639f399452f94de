//! Splits off a process that shares nothing with the one it came from, and ends it.

#![expect(
    unsafe_code,
    reason = "fork, descriptors that are closed by number, an end without another process' handlers"
)]

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::unistd::ForkResult;
use rustix::{io::Errno, process::Pid};

/// Forks. The child has `kept` and the standard three descriptors, and runs `child`.
///
/// Fails with EBUSY in a process of several threads.
pub(crate) fn fork(kept: OwnedFd, child: fn(OwnedFd) -> !) -> io::Result<Pid> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this process has one thread, counted above, so no lock of the allocator or of anything else is held by a
    // thread that the child lacks, and the child may go on as if it had been started alone.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Pid::from_raw(child.as_raw()).ok_or_else(|| io::ErrorKind::Other.into()),
        ForkResult::Child => {
            // SAFETY: `child` is a plain function that is given `kept` alone and does not return, so no owner of any
            // other descriptor, all of which live in frames above this one, is ever used or dropped.
            match unsafe { close_all_but(&kept) } {
                Ok(()) => child(kept),
                Err(_) => exit_now(1),
            }
        }
    }
}

/// Ends this process with all of its threads. What the process that it was forked from wanted done at its end is not
/// done.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes no pointer, and runs no handler that could see state in the middle of a change.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor but the standard three and `kept`.
///
/// # Safety
/// Nothing in this process uses a descriptor afterwards that was open before, or closes it by dropping it, but `kept`
/// and the standard three.
unsafe fn close_all_but(kept: &OwnedFd) -> Result<(), Errno> {
    let kept = kept.as_raw_fd().cast_unsigned();
    let ranges = [(3, kept.saturating_sub(1)), (kept.max(2) + 1, u32::MAX)];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: no memory is involved; that nobody misses what is closed is the caller's promise.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
    }
    Ok(())
}
