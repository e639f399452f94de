//! The scratch disk of a guest: a file without a name, in which the guest keeps what it writes outside of its shares.
//!
//! It takes as much of the host's disk as the guest has written, never more than its size, and is gone with the last
//! process that has it open, however that ends. The host never mounts it.

mod ext4;

use std::{env, fs::File, path::PathBuf};

use rustix::fs::statvfs;

use crate::{Error, Result};

/// Where the file is unless `TMPDIR` says otherwise: `/tmp` may be in memory.
const USUAL_DIR: &str = "/var/tmp";

/// Creates the disk, with an empty file system of `len_bytes`.
///
/// # Errors
///
/// Returns an error if the length is out of range, or more than what is free.
pub(crate) fn create(len_bytes: u64) -> Result<File> {
    let dir = env::var_os("TMPDIR").map_or_else(|| PathBuf::from(USUAL_DIR), PathBuf::from);
    let failed = || Error::io(format!("cannot create the scratch disk in {dir:?}"));
    if !(ext4::LEN_MIN..=ext4::LEN_MAX).contains(&len_bytes) {
        return Err(Error::Usage(format!(
            "a scratch disk of {len_bytes} bytes: it has {} MiB to {} TiB",
            ext4::LEN_MIN >> 20,
            ext4::LEN_MAX >> 40
        )));
    }
    let status = statvfs(&dir).map_err(|errno| failed()(errno.into()))?;
    let free_bytes = status.f_bavail.saturating_mul(status.f_frsize);
    if free_bytes < len_bytes {
        return Err(Error::Usage(format!(
            "a scratch disk of {} MiB: only {} MiB are free in {dir:?}; give it less, or set TMPDIR to a directory \
             with more",
            len_bytes >> 20,
            free_bytes >> 20
        )));
    }
    let file = tempfile::tempfile_in(&dir).map_err(failed())?;
    ext4::format(&file, len_bytes).map_err(failed())?;
    Ok(file)
}
