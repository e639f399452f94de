//! Which directory an overlay was made for.

use std::{
    ffi::OsString,
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use crate::{Error, Result};

/// The directory of an overlay: its path, and what tells it from another directory that has the path later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub(crate) path: PathBuf,
    identity: Identity,
}

/// The number of the inode, and the time at which it was made, in seconds and nanoseconds; zero where the file system
/// does not know it. Numbers of devices are not compared: they may change with a reboot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    ino: u64,
    seconds: i64,
    nanoseconds: u32,
}

impl Origin {
    /// Returns the origin of an overlay of the directory at `path`.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let failed = || format!("cannot look at {path:?}");
        let wanted = StatxFlags::INO | StatxFlags::BTIME;
        let found = statx(CWD, path, AtFlags::SYMLINK_NOFOLLOW, wanted).map_err(Error::io(failed))?;
        let made = found.stx_btime;
        let identity = Identity { ino: found.stx_ino, seconds: made.tv_sec, nanoseconds: made.tv_nsec };
        Ok(Self { path: path.to_owned(), identity })
    }

    /// Returns whether the directory at the path is still the same; `None` if the path has no directory.
    pub(crate) fn is_unchanged(&self) -> Result<Option<bool>> {
        if !self.path.is_dir() {
            return Ok(None);
        }
        Ok(Some(Self::of(&self.path)? == *self))
    }

    /// Writes the file at `path`.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let Identity { ino, seconds, nanoseconds } = self.identity;
        let mut line = format!("{ino} {seconds} {nanoseconds} ").into_bytes();
        line.extend_from_slice(self.path.as_os_str().as_bytes());
        fs::write(path, line)
    }

    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let failed = || format!("cannot read {path:?}");
        let line = fs::read(path).map_err(Error::io(failed))?;
        parse(&line).ok_or_else(|| Error::io(failed)(std::io::Error::other("it is damaged")))
    }
}

fn parse(line: &[u8]) -> Option<Origin> {
    let mut words = line.splitn(4, |&byte| byte == b' ');
    let mut number = || std::str::from_utf8(words.next()?).ok();
    let identity = Identity {
        ino: number()?.parse().ok()?,
        seconds: number()?.parse().ok()?,
        nanoseconds: number()?.parse().ok()?,
    };
    let path = PathBuf::from(OsString::from_vec(words.next()?.to_vec()));
    path.is_absolute().then_some(Origin { path, identity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let directory = folder.path().join(OsString::from_vec(b"a b\n\xff".to_vec()));
        fs::create_dir(&directory).unwrap();
        let origin = Origin::of(&directory).unwrap();
        let file = folder.path().join("origin");
        origin.write(&file).unwrap();
        assert_eq!(Origin::read(&file).unwrap(), origin);
        assert_eq!(origin.is_unchanged().unwrap(), Some(true));
        for damaged in ["", "1 2 3", "1 2 3 relative", "x 2 3 /"] {
            fs::write(&file, damaged).unwrap();
            assert!(Origin::read(&file).is_err(), "{damaged}");
        }
    }
}
