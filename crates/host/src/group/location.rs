//! Where a group's file is: in a directory that only the daemons' user can write.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    str::FromStr,
};

use rustix::{
    fs::{CWD, Mode, OFlags, Stat, fstat, mkdirat, openat},
    process::geteuid,
};

use transom_versions::location::group_dir;

use super::GroupError;
use crate::Errno;

const NAME_LEN_MAX: usize = 64;
/// Directories above that of a group: more than a path can have.
const DEPTH_MAX: usize = 4096;

/// The place of a group: a name, which stands for a directory in `$XDG_RUNTIME_DIR/transom` or `/run/transom`, or a
/// directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GroupLocation {
    /// A name.
    Name(String),
    /// A directory, created if it does not exist.
    Directory(PathBuf),
}

impl FromStr for GroupLocation {
    type Err = GroupError;

    fn from_str(text: &str) -> Result<Self, GroupError> {
        if text.contains('/') {
            return Ok(Self::Directory(text.into()));
        }
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=NAME_LEN_MAX).contains(&text.len()) && !text.starts_with('.') && text.bytes().all(is_known);
        if is_name { Ok(Self::Name(text.to_owned())) } else { Err(GroupError::Name(text.to_owned())) }
    }
}

impl GroupLocation {
    /// Returns the directory's path.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Name(name) => group_dir(name),
            Self::Directory(path) => path.clone(),
        }
    }

    /// Opens the directory, and creates what is missing of it.
    ///
    /// # Errors
    /// If it cannot be created, or if somebody else owns it or may write it.
    pub(super) fn open(&self) -> Result<OwnedFd, GroupError> {
        let path = self.path();
        let failed = |source| GroupError::Directory { path: path.clone(), source };
        if let (Self::Name(_), Some(parent)) = (self, path.parent()) {
            create(parent).map_err(failed)?;
        }
        create(&path).map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = openat(CWD, &path, flags, Mode::empty()).map_err(failed)?;
        check_private(&fstat(&directory).map_err(failed)?, || format!("directory {}", path.display()))?;
        Ok(directory)
    }
}

/// Checks that a directory is neither `share` nor in it, by what its parents are.
pub(super) fn check_outside(directory: &OwnedFd, path: &Path, share: &Path) -> Result<(), GroupError> {
    let failed = |source| GroupError::Directory { path: path.to_owned(), source };
    let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
    let share = identity(rustix::fs::stat(share).map_err(GroupError::Root)?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(directory, ".", flags, Mode::empty()).map_err(failed)?;
    for _ in 0..DEPTH_MAX {
        let here = identity(fstat(&at).map_err(failed)?);
        if here == share {
            return Err(GroupError::InShare(path.to_owned()));
        }
        at = openat(&at, "..", flags, Mode::empty()).map_err(failed)?;
        if identity(fstat(&at).map_err(failed)?) == here {
            return Ok(());
        }
    }
    Err(failed(Errno::NAMETOOLONG))
}

/// Checks that a directory or file belongs to the user of this process and that nobody else may write it.
pub(super) fn check_private(stat: &Stat, what: impl FnOnce() -> String) -> Result<(), GroupError> {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    let (owner, mode, user) = (stat.st_uid, stat.st_mode & 0o7777, geteuid().as_raw());
    if owner == user && mode & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    Err(GroupError::NotPrivate { what: what(), owner, mode, user })
}

fn create(path: &Path) -> Result<(), Errno> {
    match mkdirat(CWD, path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno),
    }
}
