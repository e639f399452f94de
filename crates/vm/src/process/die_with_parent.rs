//! The one call between fork and exec: the kernel is asked to kill the child when its parent ends.
#![expect(unsafe_code, reason = "pre_exec runs between fork and exec")]

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Makes the child of `command` die when the calling thread does.
pub(super) fn arrange(command: &mut Command) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A parent that died before the request took effect would never be noticed.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
    };
    // SAFETY: the closure runs in the forked child of a process that may have threads, so it must do only what is
    // allowed after a fork: it makes two system calls through rustix, which neither allocates nor locks, and makes
    // an `io::Error` of a number, which does not allocate either. It captures a number only.
    unsafe {
        command.pre_exec(ask);
    }
}
