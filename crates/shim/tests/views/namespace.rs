//! A user that has moved into another pid namespace since it started the process, as the daemon does.

#![expect(unsafe_code, reason = "fork, and unshare that can take descriptors apart")]

use std::{fs::OpenOptions, os::fd::AsFd, os::unix::fs::FileExt};

use anyhow::{Context as _, Result, ensure};
use nix::{
    sys::wait::{WaitStatus, waitpid},
    unistd::{ForkResult, fork, getpid},
};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use transom_shim::Shim;

use crate::attempts::{HARMLESS, PUNCH, SHORTENING, attempt};

/// To be called in a process of one thread.
pub(crate) fn user_elsewhere(shim: &Shim) -> Result<()> {
    // SAFETY: only children are concerned; descriptors stay as they are.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }?;
    // SAFETY: this process has one thread, as `Shim::start` has found, so the child may do as if it had been started
    // alone.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let result = as_first_process(shim);
            if let Err(error) = &result {
                println!("{error:#}");
            }
            std::process::exit(result.is_err().into());
        }
        ForkResult::Parent { child } => {
            ensure!(matches!(waitpid(child, None)?, WaitStatus::Exited(_, 0)));
            Ok(())
        }
    }
}

fn as_first_process(shim: &Shim) -> Result<()> {
    ensure!(getpid().as_raw() == 1);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let path = directory.path().join("file");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    let _guard = shim.guard(file.as_fd())?;
    for what in SHORTENING.into_iter().chain([PUNCH]).chain(HARMLESS) {
        file.write_all_at(&[7; 12288 + 5], 0)?;
        attempt(what, &file, &path).with_context(|| what.to_owned())?;
    }
    Ok(())
}
