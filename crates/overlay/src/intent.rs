//! What is about to be done to an overlay, written down before it begins, so that it can be finished.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::rand::{GetRandomFlags, getrandom};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, notes};

/// A commit or a discard that has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    /// The changes go into the directory first; otherwise they are only removed from the upper layer.
    pub(crate) is_commit: bool,
    /// All changes are in the directory; what is left is to remove them from the upper layer.
    pub(crate) is_applied: bool,
    /// The name of the directory for unfinished files, in the shared directory. A guest cannot guess it.
    pub(crate) unfinished: String,
    /// The paths, as bytes; none for everything.
    paths: Vec<Vec<u8>>,
}

impl Intent {
    pub(crate) fn new(is_commit: bool, paths: &[PathBuf]) -> Result<Self> {
        let mut random = [0; 16];
        let failed = || "cannot get random numbers".into();
        getrandom(&mut random, GetRandomFlags::empty()).map_err(Error::io(failed))?;
        Ok(Self {
            is_commit,
            is_applied: !is_commit,
            unfinished: format!(".transom-commit-{:032x}", u128::from_ne_bytes(random)),
            paths: paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
        })
    }

    /// Returns the paths; none for everything.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        self.paths.iter().map(|path| OsString::from_vec(path.clone()).into()).collect()
    }

    /// Returns what was written to `path`, if anything was.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        notes::read(path)
    }

    /// Writes it to `path`. It is on the disk when this returns.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        notes::write(path, self)
    }
}

/// Returns whether one of `selected` is `path` or above it. Nothing selected means everything.
pub(crate) fn covers(selected: &[PathBuf], path: &Path) -> bool {
    selected.is_empty() || selected.iter().any(|selected| path.starts_with(selected))
}
