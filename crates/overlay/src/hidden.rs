//! The paths that a guest did not see. A guest that writes its layer itself can put something over them, or remove a
//! directory with them in it: no commit does either.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{Result, notes};

/// Paths that begin at the directory, of all runs since the overlay was made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Hidden(BTreeSet<PathBuf>);

impl Hidden {
    /// Returns whether `path` is one of them, or below one.
    pub(crate) fn covers(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.0.contains(above))
    }

    /// Adds `paths`; returns whether one of them is new.
    pub(crate) fn add(&mut self, paths: &[PathBuf]) -> bool {
        let before = self.0.len();
        self.0.extend(paths.iter().cloned());
        self.0.len() > before
    }

    /// Reads the file at `path`. One that is missing hides nothing.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let paths: Vec<Vec<u8>> = notes::read(path)?.unwrap_or_default();
        Ok(Self(paths.into_iter().map(|path| OsString::from_vec(path).into()).collect()))
    }

    /// Writes the file at `path`.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let paths: Vec<&[u8]> = self.0.iter().map(|path| path.as_os_str().as_bytes()).collect();
        notes::write(path, &paths)
    }
}
