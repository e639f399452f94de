//! Forks a process that shares nothing with its parent, and ends it.

#![expect(unsafe_code, reason = "fork, close_range and _exit")]

use std::{
    fs, io,
    os::fd::{AsRawFd, OwnedFd},
};

use nix::unistd::ForkResult;
use rustix::{io::Errno, process::Pid};

/// Forks. The child keeps only `kept` and the three standard descriptors, and runs `child`.
///
/// # Errors
///
/// Returns EBUSY if the process has several threads.
pub(crate) fn fork(kept: OwnedFd, child: fn(OwnedFd) -> !) -> io::Result<Pid> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this process has one thread, as checked above, so no thread that the child lacks holds a lock of the
    // allocator or of anything else, and the child may run any code.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Pid::from_raw(child.as_raw()).ok_or_else(|| io::ErrorKind::Other.into()),
        ForkResult::Child => {
            // SAFETY: `child` is a plain function that gets only `kept` and does not return, so no owner of another
            // descriptor, all of which are in frames above this one, is ever used or dropped.
            match unsafe { close_all_but(&kept) } {
                Ok(()) => child(kept),
                Err(_) => exit_now(1),
            }
        }
    }
}

/// Ends this process with all its threads, without running exit handlers, which would be those of the parent.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: _exit takes no pointer, and runs no handler that could see inconsistent state.
    unsafe { libc::_exit(status) }
}

/// Closes every descriptor except the standard three and `kept`.
///
/// # Safety
/// Nothing in this process may afterwards use or drop a descriptor that was open before, except `kept` and the standard
/// three.
unsafe fn close_all_but(kept: &OwnedFd) -> Result<(), Errno> {
    let kept = kept.as_raw_fd().cast_unsigned();
    let ranges = [(3, kept.saturating_sub(1)), (kept.max(2) + 1, u32::MAX)];
    for (first, last) in ranges.into_iter().filter(|(first, last)| first <= last) {
        // SAFETY: no memory is involved; the caller guarantees that the closed descriptors are not used again.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
    }
    Ok(())
}
