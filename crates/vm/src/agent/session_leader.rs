//! The command's session: it leads one of its own, with the terminal on its standard input if there is one.
#![expect(unsafe_code, reason = "pre_exec runs between fork and exec")]

use std::{io, os::unix::process::CommandExt, process::Command};

use rustix::process::{ioctl_tiocsctty, setsid};

/// Makes the child of `command` a session leader; `has_terminal` says that its standard input is a terminal.
pub(super) fn arrange(command: &mut Command, has_terminal: bool) {
    let setup = move || {
        setsid()?;
        if has_terminal {
            ioctl_tiocsctty(rustix::stdio::stdin())?;
        }
        Ok::<(), io::Error>(())
    };
    // SAFETY: the closure runs in the forked child of a process with threads, so it must do only what is allowed
    // after a fork: it makes two system calls through rustix, which neither allocates nor locks, and its errors are
    // numbers. std has put the command's standard input in place before it runs the closure, so descriptor 0 is open.
    unsafe {
        command.pre_exec(setup);
    }
}
