//! Why changes cannot be observed.

use rustix::io::Errno;
use thiserror::Error;

/// Why changes cannot be observed, or no longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WatchError {
    /// The kernel grants this to privileged processes only.
    #[error("cannot observe the file system of the share: {0}; this needs CAP_SYS_ADMIN")]
    Privilege(Errno),
    /// The kernel is too old.
    #[error("cannot observe names: {0}; this needs Linux 5.17 or newer with CONFIG_FANOTIFY")]
    Kernel(Errno),
    /// The file system has no file handles that can be opened, or no id.
    #[error("cannot observe this file system: {0}; it has no file handles, or no id of its own")]
    FileSystem(Errno),
    /// A limit of the machine is reached.
    #[error("cannot observe the file system of the share: {0}; see /proc/sys/fs/fanotify")]
    Limit(Errno),
    /// Too many directories are observed.
    #[error(
        "cannot observe more than {0} directories: {1}; changes in others go unnoticed \
         (/proc/sys/fs/inotify/max_user_watches is the limit of a user)"
    )]
    Watches(usize, Errno),
    /// Reading failed.
    #[error("cannot read changes: {0}")]
    Read(Errno),
    /// The kernel sent something else than it documents.
    #[error("cannot understand the kernel's record of a change ({0})")]
    Record(&'static str),
}
