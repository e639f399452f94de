//! Why a mount cannot start, and why it ends.

use std::{io, path::PathBuf};

use rustix::io::Errno;
use thiserror::Error;
use transom_guest::device::DeviceError;
use transom_user::share::ShareError;
use transom_versions::TableError;

use super::{IncompatibleDaemon, InitError};

/// Why a mount has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MountEnd {
    /// It was unmounted.
    #[error("it was unmounted")]
    Unmounted,
    /// Somebody aborted the connection. The mount point is still mounted.
    #[error("the connection was aborted by /sys/fs/fuse/connections or `umount -f`")]
    Aborted,
    /// This process stopped it.
    #[error("it was stopped")]
    Stopped,
    /// The daemon closed the connection or died.
    #[error("the daemon is gone")]
    Gone,
    /// The daemon did what no device may do. The connection was closed.
    #[error("the daemon broke the protocol: {0}")]
    Broken(&'static str),
    /// A system call on `/dev/fuse` or of the mount's threads failed.
    #[error("a system call of the mount failed: {0}")]
    Kernel(Errno),
}

impl MountEnd {
    /// Converts the error of reading a request.
    pub(super) fn of_reading(errno: Errno) -> Self {
        match errno {
            Errno::NODEV => Self::Unmounted,
            Errno::CONNABORTED => Self::Aborted,
            errno => Self::Kernel(errno),
        }
    }
}

/// Why a share could not be mounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// The daemon could not be started or connected to.
    #[error(transparent)]
    Share(#[from] ShareError),
    /// The daemon's device cannot be used.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// There is not enough memory for requests.
    #[error("cannot allocate the memory that is shared with the daemon")]
    Memory(#[source] io::Error),
    /// mount(2) or `fusermount3` failed.
    #[error("cannot mount at {path:?}")]
    MountPoint {
        /// The mount point.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Kernel and daemon did not agree on a session.
    #[error(transparent)]
    Init(#[from] InitError),
    /// A thread, or a descriptor that it needs, could not be created.
    #[error("cannot start the mount's threads")]
    Threads(#[source] io::Error),
    /// A new daemon cannot replace the previous one.
    #[error(transparent)]
    Incompatible(#[from] IncompatibleDaemon),
    /// The mount would hide a path that reconnecting needs.
    #[error(
        "{path:?} cannot be reached once {mountpoint:?} is mounted: with reconnect, choose a mount point that does not \
         contain it"
    )]
    Hidden {
        /// The shared directory, the socket or the daemon's program.
        path: PathBuf,
        /// The mount point.
        mountpoint: PathBuf,
    },
    /// A directory can be mounted only on a directory, and a file only on a file.
    #[error(
        "the share of {shared:?} is {}, and {mountpoint:?} is not",
        if *.is_dir { "a directory" } else { "a file" }
    )]
    Kind {
        /// What is shared, or the socket of the daemon that shares it.
        shared: PathBuf,
        /// The mount point.
        mountpoint: PathBuf,
        /// Whether a directory is shared.
        is_dir: bool,
    },
    /// Both options were set.
    #[error(
        "passthrough and reconnect cannot be combined: a file that is passed through stays the one that was opened, \
         whatever a new daemon finds under its name"
    )]
    PassthroughWithReconnect,
    /// Both options were set.
    #[error(
        "a coherence group and passthrough cannot be combined: the daemon does not see what is written to a file that \
         is passed through, so others of the group would not learn of it"
    )]
    CoherentWithPassthrough,
    /// Both options were set.
    #[error(
        "a coherence group and reconnect cannot be combined: while there is no daemon, nobody tells the mount what \
         others of the group change"
    )]
    CoherentWithReconnect,
    /// The daemon is not in a coherence group, or does not let its front end map the table.
    #[error(
        "the daemon offers no version table: start transomd with --coherence-group and --front-end=alioth to mount its \
         share coherently"
    )]
    NoVersionTable,
    /// The version table has a wrong header.
    #[error("the daemon's version table cannot be used")]
    VersionTable(#[source] TableError),
}
