//! The directories in which changes of the host are observed, where not the whole file system is.
//!
//! That are those that the guest knows, on the file system of the root: a name is known only in such a directory. Each
//! is observed before the guest is told its nodeid, until the guest has forgotten it. Its descriptor stays open
//! meanwhile, beyond the limits of [`Descriptors`](super::Descriptors), whose owner has left room for that.
//!
//! The lock is held while the kernel is told, so that it does what the table says. That waits for no file system.

use std::{
    collections::HashMap,
    fmt::Debug,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{Fd, FsId, Identity, Inode, Inodes, lock};
use crate::Errno;

/// Number of directories that are observed, each with a descriptor and about a kilobyte of the kernel's memory.
const DIRECTORIES_MAX: usize = 8192;

/// Has changes in single directories observed, for [`Passthrough`](crate::passthrough::Passthrough).
pub trait ObserveDirectories: Debug + Send + Sync {
    /// Observes names in the directory `dir`, an `O_PATH` descriptor, and the files with these names.
    ///
    /// # Errors
    ///
    /// Those of the system call, as EACCES or ENOSPC.
    fn observe(&self, dir: BorrowedFd<'_>) -> Result<(), Errno>;

    /// Stops to observe a directory that is observed.
    ///
    /// # Errors
    ///
    /// Those of the system call; the directory is still observed then.
    fn ignore(&self, dir: BorrowedFd<'_>) -> Result<(), Errno>;
}

/// What is observed.
#[derive(Debug)]
pub(super) struct Observed {
    kernel: Arc<dyn ObserveDirectories>,
    fs: FsId,
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// Descriptors by inode number, which is not used again while they are open.
    directories: HashMap<u64, Fd>,
    /// Whether a directory that the guest knows, or knew, is not observed.
    is_incomplete: bool,
}

/// Returns how many descriptors of `limit` are kept for directories that are observed.
pub(in crate::passthrough) fn reserve(limit: usize) -> usize {
    DIRECTORIES_MAX.min(limit / 4)
}

impl Observed {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn observe(&self, inode: &Inode) {
        let mut table = self.lock();
        if inode.fs != self.fs || table.directories.contains_key(&inode.ino) {
            return;
        }
        let observed = match table.directories.len() < self.max {
            true => self.kernel.observe(inode.fd.as_fd()),
            false => Err(Errno::NOSPC),
        };
        match observed {
            Ok(()) => drop(table.directories.insert(inode.ino, inode.fd.clone())),
            Err(errno) if !table.is_incomplete => {
                table.is_incomplete = true;
                tracing::warn!(
                    "changes in some directories go unnoticed by the guest: {errno} ({} are observed; the limits are \
                     {}, and /proc/sys/fs/fanotify/max_user_marks)",
                    table.directories.len(),
                    self.max
                );
            }
            Err(_) => {}
        }
    }
}

impl Inodes {
    /// Has changes in the directories that the guest knows observed by `kernel`, at most `max` of them.
    ///
    /// # Errors
    ///
    /// The root cannot be observed.
    pub(in crate::passthrough) fn observed_by(
        mut self,
        kernel: Arc<dyn ObserveDirectories>,
        max: usize,
    ) -> Result<Self, Errno> {
        kernel.observe(self.root.fd.as_fd())?;
        self.observed = Some(Observed { kernel, fs: self.root.fs, max, table: Mutex::default() });
        Ok(self)
    }

    /// Has a directory observed that the guest is about to know, if single ones are. Call it before the guest is told
    /// anything of the directory.
    pub(in crate::passthrough) fn observe(&self, directory: &Inode) {
        if let Some(observed) = &self.observed {
            observed.observe(directory);
        }
    }

    /// Stops to observe a directory that the guest has forgotten. Takes the lock of a shard within its own.
    pub(super) fn ignore(&self, identity: &Identity) {
        let Some(observed) = self.observed.as_ref().filter(|observed| observed.fs == identity.fs) else { return };
        let mut table = observed.lock();
        // Another thread may have found it again.
        if lock(self.shard_of(identity)).find_any(identity).is_some() {
            return;
        }
        if let Some(fd) = table.directories.get(&identity.ino)
            && observed.kernel.ignore(fd.as_fd()).is_ok()
        {
            table.directories.remove(&identity.ino);
        }
    }

    /// Returns whether single directories are observed.
    pub(in crate::passthrough) fn observes_directories(&self) -> bool {
        self.observed.is_some()
    }

    /// Returns whether there are directories that the guest knows and that should be observed but are not.
    pub(in crate::passthrough) fn misses_directories(&self) -> bool {
        self.observed.as_ref().is_some_and(|observed| observed.lock().is_incomplete)
    }
}
