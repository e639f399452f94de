//! What a child does between fork and exec: it asks to die with its parent, and keeps what it inherits.
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
        // A parent that died before the request took effect would never be noticed.
        if getppid() != Some(parent) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        for fd in &inherited {
            fcntl_setfd(fd.as_fd(), FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the forked child of a process that may have threads, so it must do only what is
    // allowed after a fork: it makes system calls through rustix, which neither allocates nor locks there, and makes
    // errors of numbers, which does not allocate either. The vector it reads was filled before the fork, and is not
    // dropped in the child, which goes on to exec or `_exit`.
    unsafe {
        command.pre_exec(setup);
    }
}
