//! Splits the process in two.

#![expect(unsafe_code, reason = "fork, and the disposition of a signal")]

use nix::sys::signal::{SigHandler, Signal};
use nix::unistd::ForkResult;
use rustix::process::Pid;
use std::io;

/// Forks. Returns the child's process id in the parent, and `None` in the child.
///
/// # Errors
/// `EBUSY` if the process has several threads.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    keep_exit_statuses()?;
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::from_raw_os_error(libc::EBUSY));
    }
    // SAFETY: this process has one thread, counted above, so no lock of the allocator or of anything else is held by a
    // thread that the child lacks, and the child may go on as if it had been started alone.
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Parent { child } => Ok(Pid::from_raw(child.as_raw())),
        ForkResult::Child => Ok(None),
    }
}

/// As [`fork`], but the two processes share their table of descriptors: what one opens or closes, the other has open or
/// closed, and the table is there until both have ended.
///
/// The sandbox hides how many threads there are, so the caller vouches that there is one.
pub(super) fn fork_sharing_descriptors() -> io::Result<Option<Pid>> {
    keep_exit_statuses()?;
    let flags = libc::c_long::from(libc::CLONE_FILES | libc::SIGCHLD);
    // SAFETY:
    // 1. Without CLONE_VM and with a null stack, the child goes on here with a copy of the memory, as after fork(2).
    // 2. This process has one thread: this is called while it isolates itself, before the first thread starts. So no
    //    lock is held by a thread that the child lacks.
    // 3. The C library's record of the thread's number is the parent's in the child. It uses it to recognise the owner
    //    of a lock, for which it only has to differ from those of other threads of the child. It does: the parent lives
    //    as long as the child, which ends with it, so no thread gets the parent's number.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Pid::from_raw(child as i32)),
    }
}

/// A caller that ignores SIGCHLD passes that on, and the kernel would then discard a child's exit status.
fn keep_exit_statuses() -> io::Result<()> {
    // SAFETY: the default action is no handler of ours, so nothing runs at the signal.
    unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;
    Ok(())
}
