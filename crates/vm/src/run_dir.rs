//! The private directory of a run, and the removal of directories that a killed run left behind.
//!
//! A live run holds a lock on a file in its directory; the kernel releases it however the run ends.

use std::{
    env,
    fs::{self, File},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::{Error, Result};

const PREFIX: &str = "transom-run-";
const LOCK: &str = "lock";

/// A directory that only this user can access, removed when this is dropped.
#[derive(Debug)]
pub(crate) struct RunDir {
    dir: TempDir,
    _lock: File,
}

impl RunDir {
    /// Creates a directory in `$XDG_RUNTIME_DIR`, or else in the directory for temporary files. Removes abandoned ones
    /// there.
    pub(crate) fn new() -> Result<Self> {
        let usual = env::temp_dir();
        let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
        if let Some(made) = runtime.as_deref().and_then(|dir| Self::new_in(dir).ok()) {
            return Ok(made);
        }
        Self::new_in(&usual).map_err(Error::io(format!("cannot create a directory in {usual:?}")))
    }

    fn new_in(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in(parent)?;
        // The file is renamed after it is locked, so that it is never seen unlocked.
        let unnamed = dir.path().join("lock.new");
        let lock = File::create(&unnamed)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        fs::rename(&unnamed, dir.path().join(LOCK))?;
        Ok(Self { dir, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Removes the directory.
    ///
    /// # Errors
    ///
    /// Returns an error if something in it cannot be removed.
    pub(crate) fn close(self) -> Result<()> {
        let path = self.dir.path().to_owned();
        self.dir.close().map_err(Error::io(format!("cannot remove {path:?}")))
    }
}

/// Removes the directories of runs that have ended. One that cannot be removed belongs to another user.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()) {
            continue;
        }
        let Ok(lock) = File::open(entry.path().join(LOCK)) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_folder_stays_and_an_abandoned_one_goes() {
        let parent = tempfile::tempdir().unwrap();
        let live = RunDir::new_in(parent.path()).unwrap();
        let abandoned = parent.path().join("transom-run-abandoned");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK), "").unwrap();
        let unfinished = parent.path().join("transom-run-unfinished");
        fs::create_dir(&unfinished).unwrap();

        let another = RunDir::new_in(parent.path()).unwrap();
        assert!(live.path().is_dir() && unfinished.is_dir() && !abandoned.exists());
        assert_eq!(fs::metadata(another.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let path = another.path().to_owned();
        another.close().unwrap();
        assert!(!path.exists());
    }
}
