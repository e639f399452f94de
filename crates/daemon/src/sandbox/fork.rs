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
    // A caller that ignores SIGCHLD passes that on, and the kernel would then discard the child's exit status.
    // SAFETY: the default action is no handler of ours, so nothing runs at the signal.
    unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }?;

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
