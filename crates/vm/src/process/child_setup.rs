//! Sets up a child between fork and exec: it dies with its parent and keeps inherited descriptors.
#![expect(unsafe_code, reason = "pre_exec runs between fork and exec")]

use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::Command,
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
};

/// Makes the child of `command` die when the calling thread does, and leaves `inherited` open in it.
pub(super) fn arrange(command: &mut Command, inherited: Vec<OwnedFd>) {
    let parent = getpid();
    let setup = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent died before the request took effect, the kernel would not kill this process.
        if getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for fd in &inherited {
            fcntl_setfd(fd.as_fd(), FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the forked child of a process that may have threads, so it must be async-signal-safe.
    // It makes system calls through rustix, which neither allocates nor locks there, and creates errors from numbers,
    // which does not allocate either. The vector that it reads was filled before the fork, and is not dropped in the
    // child, which continues to exec or `_exit`.
    unsafe {
        command.pre_exec(setup);
    }
}
