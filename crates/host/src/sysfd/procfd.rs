//! Operations that an `O_PATH` descriptor does not support directly, through its entry in `/proc/self/fd`.
//!
//! Such an entry leads to the inode itself, whatever its name is now, and does not follow a symbolic link there. The
//! directory is opened once, before the sandbox hides `/proc` and after the last fork: its entries are those of the
//! process that opened it. Before 6.13, kernels have no call for extended attributes relative to a directory, so a
//! thread that uses them gets a working directory of its own, which stays at that directory: see
//! [`ProcFds::get_xattr`].

use std::{
    cell::Cell,
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{Access, AtFlags, Mode, OFlags, XattrFlags},
    io::Errno,
    path::DecInt,
};

use super::thread_fs;

/// An open `/proc/self/fd`.
///
/// Can be created from a descriptor if the process can no longer see `/proc`.
#[derive(Debug)]
pub struct ProcFds {
    dir: OwnedFd,
    /// Identifies the working directory of a thread.
    id: u64,
}

thread_local! {
    /// The [`ProcFds::id`] of the thread's working directory, or 0 if that is another directory.
    static ENTERED: Cell<u64> = const { Cell::new(0) };
}

impl From<OwnedFd> for ProcFds {
    fn from(dir: OwnedFd) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Self { dir, id: NEXT_ID.fetch_add(1, Ordering::Relaxed) }
    }
}

impl ProcFds {
    /// Opens `/proc/self/fd`. Errors: ENOENT if `/proc` is not mounted.
    pub fn open() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(c"/proc/self/fd", flags, Mode::empty())?.into())
    }

    /// Opens the inode behind `fd` again, with a new open file description.
    ///
    /// `O_NOFOLLOW` is removed from `flags`, since the entry is itself a link; `O_CLOEXEC` is always set. Blocks on a
    /// FIFO without `O_NONBLOCK`.
    ///
    /// # Errors
    ///
    /// ELOOP if the inode is a symbolic link; those of open(2).
    pub fn reopen(&self, fd: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = (flags - OFlags::NOFOLLOW) | OFlags::CLOEXEC;
        rustix::fs::openat(&self.dir, entry(fd), flags, Mode::empty())
    }

    /// Returns the path of the inode behind `fd`, as this process sees it, or an empty string if that is unknown.
    pub fn name(&self, fd: impl AsFd) -> String {
        let name = rustix::fs::readlinkat(&self.dir, entry(fd), Vec::new());
        name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// Returns the path of the inode behind `fd`, as this process sees it. If the name is gone or out of sight, the
    /// path leads elsewhere or nowhere.
    pub fn path(&self, fd: impl AsFd) -> Result<Vec<u8>, Errno> {
        rustix::fs::readlinkat(&self.dir, entry(fd), Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// Returns whether permissions let this process open the inode behind `fd` for writing.
    pub fn may_write(&self, fd: impl AsFd) -> bool {
        rustix::fs::accessat(&self.dir, entry(fd), Access::WRITE_OK, AtFlags::empty()).is_ok()
    }

    /// Changes the permissions of the inode behind `fd`. Errors: EOPNOTSUPP for a symbolic link.
    pub fn chmod(&self, fd: impl AsFd, mode: Mode) -> Result<(), Errno> {
        rustix::fs::chmodat(&self.dir, entry(fd), mode, AtFlags::empty())
    }

    /// Gives the inode behind `fd` the additional name `name` in `dir`, without the privilege that `AT_EMPTY_PATH`
    /// needs.
    ///
    /// # Errors
    ///
    /// ENOENT if the inode has no name any more, unless it was opened with `O_TMPFILE`; those of linkat(2).
    pub fn link(&self, fd: impl AsFd, dir: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        rustix::fs::linkat(&self.dir, entry(fd), dir, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Reads an extended attribute of the inode behind `fd`; with an empty `value`, returns its size.
    ///
    /// Gives the calling thread a working directory of its own, in `/proc/self/fd`, and a private copy of its umask:
    /// call this and its three siblings on worker threads.
    ///
    /// # Errors
    ///
    /// ERANGE if `value` is too short, ENODATA without the attribute; those of getxattr(2).
    pub fn get_xattr(&self, fd: impl AsFd, name: &[u8], value: &mut [u8]) -> Result<usize, Errno> {
        self.enter()?;
        if value.is_empty() {
            return rustix::fs::getxattr_query(entry(fd), name);
        }
        rustix::fs::getxattr(entry(fd), name, value)
    }

    /// Sets an extended attribute; see [`ProcFds::get_xattr`] for the effect on the thread.
    pub fn set_xattr(&self, fd: impl AsFd, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        self.enter()?;
        rustix::fs::setxattr(entry(fd), name, value, flags)
    }

    /// Reads the names of all extended attributes, each NUL-terminated; with an empty `list`, returns their size.
    ///
    /// See [`ProcFds::get_xattr`] for the effect on the thread. Errors: ERANGE if `list` is too short.
    pub fn list_xattr(&self, fd: impl AsFd, list: &mut [u8]) -> Result<usize, Errno> {
        self.enter()?;
        if list.is_empty() {
            return rustix::fs::listxattr_query(entry(fd));
        }
        rustix::fs::listxattr(entry(fd), list)
    }

    /// Removes an extended attribute; see [`ProcFds::get_xattr`] for the effect on the thread.
    pub fn remove_xattr(&self, fd: impl AsFd, name: &[u8]) -> Result<(), Errno> {
        self.enter()?;
        rustix::fs::removexattr(entry(fd), name)
    }

    /// Makes the directory the working directory of this thread only.
    fn enter(&self) -> Result<(), Errno> {
        if ENTERED.get() == self.id {
            return Ok(());
        }
        thread_fs::set_working_directory(&self.dir)?;
        ENTERED.set(self.id);
        Ok(())
    }
}

/// Returns the name of `fd` in `/proc/self/fd`.
fn entry(fd: impl AsFd) -> DecInt {
    DecInt::from_fd(fd)
}

#[cfg(test)]
#[path = "procfd_test.rs"]
mod procfd_test;
