//! The file system that serves a directory of the host.
//!
//! [`Passthrough`] is the whole of it; each operation is one file in [`ops`]. [`inodes`] knows what the guest knows,
//! [`handles`] what it has open, [`descriptors`] how many of the host's descriptors that takes, [`dir_stream`] reads
//! directories, [`read_ahead`] bounds what that keeps, [`attr`] translates attributes, [`dax`] decides what is mapped,
//! [`gate`] what a worker does itself, [`buffered`] serves requests without `O_DIRECT` on files that are open with it, [`gauges`] says what is held.
//!
//! A name is resolved as one component relative to its directory, without following links and without leaving the
//! directory; nothing is ever opened but regular files and directories. So neither a link nor a race leads out of the
//! share, whether there is a sandbox around or not.

mod attr;
mod buffered;
mod close;
mod config;
mod creator;
mod dax;
mod descriptors;
mod dir_batch;
mod dir_stream;
mod gate;
mod gauges;
mod handles;
mod inodes;
mod ops;
mod read_ahead;
mod set_id;
mod slab;

#[cfg(test)]
mod tests;

pub use config::{CachePolicy, Config, FileHandles, MAX_INODES, Negotiation};
pub use dax::Dax;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::fs::{FileType, Mode, OFlags};
use transom_wire::ops::init::InitFlags;

use crate::{
    Errno,
    credentials::{Credentials, Judge},
    locks::{self, Locks},
    sysfd::ProcFds,
};
use descriptors::{Descriptors, LIMIT_MIN};
use gate::Gate;
use handles::Handles;
use inodes::{Capacity, Inodes};
use read_ahead::ReadAhead;

/// A directory of the host, or one file, as a [`FileSystem`](crate::server::FileSystem).
///
/// The umask of the process should be 0: the guest's kernel has already applied the umask of its process to the mode.
#[derive(Debug)]
pub struct Passthrough {
    config: Config,
    inodes: Inodes,
    handles: Handles,
    read_ahead: Arc<ReadAhead>,
    proc_fds: Arc<ProcFds>,
    credentials: Credentials,
    /// `None` where no lock reaches the host.
    locks: Option<Locks>,
    /// The host's name of a file's capabilities, where the host does not know it for that.
    capability_name: Option<Box<[u8]>>,
    lookup_gate: Gate,
    readdir_gate: Gate,
    write_gate: Gate,
    /// `None` without a window.
    dax: Option<Dax>,
    /// The flags of the present session.
    session: AtomicU64,
}

/// Why a directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The shared directory cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The shared directory.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// `/proc/self/fd` cannot be opened.
    #[error("cannot open /proc/self/fd, which every operation by descriptor needs")]
    Proc(#[source] Errno),
    /// The shared directory is neither a directory nor a regular file.
    #[error("the share is neither a directory nor a regular file but a {0:?}")]
    Kind(FileType),
    /// Inodes cannot be held as configured.
    #[error("inodes of the share cannot be held by file handles, which are mandatory")]
    Handles(#[source] Errno),
    /// Waiting for locks cannot be prepared.
    #[error("cannot prepare to wait for locks of the host")]
    Locks(#[source] Errno),
    /// What this process may do cannot be found out.
    #[error("cannot read the capabilities of this process")]
    Credentials(#[source] Errno),
}

impl Passthrough {
    /// Serves the directory or file at `path`.
    ///
    /// Call it once the process has given up what it does not need, and before threads start.
    pub fn open(path: &Path, config: Config) -> Result<Self, Error> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| Error::Open { path: path.to_owned(), source })?;
        Self::new(root, ProcFds::open().map_err(Error::Proc)?, config)
    }

    /// Serves the directory or file behind `root`, an `O_PATH` descriptor, for a process that cannot see `/proc` any more.
    pub fn new(root: OwnedFd, proc_fds: ProcFds, config: Config) -> Result<Self, Error> {
        let judge = if config.owners.is_identity() { Judge::Guest } else { Judge::Host };
        let credentials = Credentials::detect(judge).map_err(Error::Credentials)?;
        let limit = config.max_fds.unwrap_or_else(Descriptors::default_limit).max(LIMIT_MIN);
        let (locks, lock_owners_max) = locks(&config, limit)?;
        let descriptors = Arc::new(Descriptors::new(limit - lock_owners_max));
        let proc_fds = Arc::new(proc_fds);
        let capacity = Capacity::new(config.max_inodes);
        let inodes =
            Inodes::new(root, config.inode_file_handles, Arc::clone(&proc_fds), Arc::clone(&descriptors), capacity)
                .map_err(Error::Handles)?;
        let file_type = inodes.root().file_type;
        if !matches!(file_type, FileType::Directory | FileType::RegularFile) {
            return Err(Error::Kind(file_type));
        }
        Ok(Self {
            capability_name: capability_name(&config),
            config,
            inodes,
            handles: Handles::new(descriptors),
            read_ahead: Arc::default(),
            proc_fds,
            credentials,
            locks,
            lookup_gate: Gate::default(),
            readdir_gate: Gate::default(),
            write_gate: Gate::default(),
            dax: None,
            session: AtomicU64::new(0),
        })
    }

    /// Shows the guest files through a window.
    pub fn with_dax(self, dax: Dax) -> Self {
        Self { dax: Some(dax), ..self }
    }

    /// How many inodes the guest knows beside the root.
    pub fn inode_count(&self) -> usize {
        self.inodes.capacity().known()
    }

    /// Closes what has not been used since the call before: to be called every few seconds, idle or not.
    ///
    /// Without it, files that the host deletes may keep their blocks until the guest has used 256 others.
    pub fn tidy(&self) {
        self.inodes.close_unused();
    }

    /// Whether the present session has `flag`.
    fn has(&self, flag: InitFlags) -> bool {
        InitFlags::from_bits_retain(self.session.load(Relaxed)).contains(flag)
    }

    /// Errors: EROFS where the share is read-only. Every operation that changes something begins with it.
    fn check_writable(&self) -> Result<(), Errno> {
        if self.config.readonly { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// The locks that reach the host, and how many descriptors they may take of `limit`.
fn locks(config: &Config, limit: usize) -> Result<(Option<Locks>, usize), Error> {
    if !config.posix_lock && !config.flock {
        return Ok((None, 0));
    }
    let usual = locks::Limits::default();
    let owners = if config.posix_lock { usual.owners.min(limit / 8) } else { 0 };
    let limits = locks::Limits { owners, owners_per_inode: usual.owners_per_inode.min(owners), ..usual };
    Ok((Some(Locks::new(limits).map_err(Error::Locks)?), owners))
}

fn capability_name(config: &Config) -> Option<Box<[u8]>> {
    const KNOWN: &[u8] = b"security.capability";
    let name = config.xattr_map.as_ref()?.to_server(KNOWN).ok()?;
    (*name != *KNOWN).then(|| name.into_owned().into())
}
