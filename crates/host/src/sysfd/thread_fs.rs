//! A working directory and a umask of the calling thread's own.
//!
//! Linux shares both among the threads of a process until one of them leaves. A thread that has left stays so until it
//! ends; what it had is copied, so that a umask of 0 set before threads begin is everybody's.

#![expect(unsafe_code, reason = "rustix marks unshare unsafe for the sake of CLONE_FILES")]

use std::{cell::Cell, os::fd::AsFd};

use rustix::{
    fs::Mode,
    io::Errno,
    process::{fchdir, umask},
    thread::{UnshareFlags, unshare_unsafe},
};

thread_local! {
    static IS_OWN: Cell<bool> = const { Cell::new(false) };
}

/// Changes the working directory of this thread alone.
pub fn set_working_directory(dir: impl AsFd) -> Result<(), Errno> {
    leave()?;
    fchdir(dir)
}

/// Changes the umask of this thread alone and returns the one before.
pub fn set_umask(mask: Mode) -> Result<Mode, Errno> {
    leave()?;
    Ok(umask(mask))
}

fn leave() -> Result<(), Errno> {
    if !IS_OWN.get() {
        // SAFETY: CLONE_FS separates the working directory, the root and the umask, no descriptors.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        IS_OWN.set(true);
    }
    Ok(())
}
