//! Working directory and umask of a single thread.
//!
//! Linux shares both among the threads of a process until a thread unshares them. It keeps its own until it ends. They
//! start as copies, so a umask of 0 set before threads start applies to all of them.

#![expect(unsafe_code, reason = "rustix marks unshare unsafe because of CLONE_FILES")]

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

/// Changes the working directory of this thread only.
pub fn set_working_directory(dir: impl AsFd) -> Result<(), Errno> {
    leave()?;
    fchdir(dir)
}

/// Changes the umask of this thread only and returns the previous one.
pub fn set_umask(mask: Mode) -> Result<Mode, Errno> {
    leave()?;
    Ok(umask(mask))
}

fn leave() -> Result<(), Errno> {
    if !IS_OWN.get() {
        // SAFETY: CLONE_FS unshares the working directory, the root and the umask, no descriptors.
        unsafe { unshare_unsafe(UnshareFlags::FS) }?;
        IS_OWN.set(true);
    }
    Ok(())
}
