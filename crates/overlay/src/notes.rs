//! Notes about an overlay: files of JSON that are replaced at once, and opened through no symbolic link.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Error, Result};

/// Returns what was written to `path`, if anything was.
pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let failed = || format!("cannot read {path:?}");
    let mut bytes = Vec::new();
    match plain().read(true).open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(failed)(error)),
        Ok(_) => Ok(Some(serde_json::from_slice(&bytes).map_err(Error::io(failed))?)),
    }
}

/// Writes `note` to `path`. It is on the disk when this returns.
pub(crate) fn write<T: Serialize>(path: &Path, note: &T) -> Result<()> {
    let write = || {
        let unnamed = path.with_extension("new");
        let mut file = plain().write(true).create(true).truncate(true).open(&unnamed)?;
        file.write_all(&serde_json::to_vec(note)?)?;
        file.sync_data()?;
        std::fs::rename(&unnamed, path)?;
        path.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    };
    write().map_err(Error::io(|| format!("cannot write {path:?}")))
}

fn plain() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}
