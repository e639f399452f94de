//! What is about to be done to an overlay, written down before it begins, so that it can be finished.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::OpenOptionsExt,
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::OFlags,
    rand::{GetRandomFlags, getrandom},
};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

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
        let failed = || format!("cannot read {path:?}");
        let mut bytes = Vec::new();
        match plain().read(true).open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(failed)(error)),
            Ok(_) => Ok(Some(serde_json::from_slice(&bytes).map_err(Error::io(failed))?)),
        }
    }

    /// Writes it to `path`. It is on the disk when this returns.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let write = || {
            let unnamed = path.with_extension("new");
            let mut file = plain().write(true).create(true).truncate(true).open(&unnamed)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_data()?;
            std::fs::rename(&unnamed, path)?;
            path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
        };
        write().map_err(Error::io(|| format!("cannot write {path:?}")))
    }
}

/// Opens no file through a symbolic link.
fn plain() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Returns whether one of `selected` is `path` or above it. Nothing selected means everything.
pub(crate) fn covers(selected: &[PathBuf], path: &Path) -> bool {
    selected.is_empty() || selected.iter().any(|selected| path.starts_with(selected))
}
