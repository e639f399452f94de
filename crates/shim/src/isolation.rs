//! Isolates the process from its parent, and drops privileges that it does not need.

use std::os::fd::OwnedFd;

use caps::{CapSet, Capability, CapsHashSet};
use nix::sys::signal::SigSet;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    process::{DumpableBehavior, Signal, chroot, fchdir, set_dumpable_behavior, set_parent_process_death_signal},
    stdio::{dup2_stderr, dup2_stdin, dup2_stdout},
    thread::{set_name, set_no_new_privs},
};

/// Detaches from the standard descriptors and signals of the parent, and arranges to die with it.
pub(crate) fn leave_the_user() -> Result<(), Errno> {
    // Signals of a terminal or supervisor must not end this process before its user, because front ends may wait for
    // answers.
    SigSet::all().thread_block().map_err(|errno| Errno::from_raw_os_error(errno as i32))?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_name(c"transom-shim")?;
    let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)
}

/// Makes `root`, the directory of the views, the root directory, and drops capabilities.
pub(crate) fn confine(root: &OwnedFd) -> Result<(), Errno> {
    fchdir(root)?;
    chroot(".")?;
    drop_capabilities(Duty::Open)?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    set_no_new_privs(true)
}

/// The duty of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Answers the kernel's requests.
    Serve,
    /// Closes registrations.
    Close,
    /// Registers and marks files, regardless of their permissions.
    Open,
    /// Reads the system calls of other processes.
    Listen,
}

/// Drops all capabilities of this thread except those that its duty needs.
pub(crate) fn drop_capabilities(duty: Duty) -> Result<(), Errno> {
    let kept: &[Capability] = match duty {
        Duty::Serve => &[],
        Duty::Close => &[Capability::CAP_SYS_ADMIN],
        Duty::Open => &[Capability::CAP_SYS_ADMIN, Capability::CAP_DAC_READ_SEARCH],
        Duty::Listen => &[Capability::CAP_SYS_PTRACE],
    };
    let kept: CapsHashSet = kept.iter().copied().collect();
    caps::clear(None, CapSet::Ambient).map_err(|_| Errno::PERM)?;
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(|_| Errno::PERM)?;
    }
    caps::clear(None, CapSet::Inheritable).map_err(|_| Errno::PERM)
}
