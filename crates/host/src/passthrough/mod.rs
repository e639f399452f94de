//! The file system that serves a directory of the host.
//!
//! [`Passthrough`] is the file system; each operation is a file in [`ops`]. [`inodes`] tracks the inodes that the
//! guest knows, [`handles`] the files that it has open, [`descriptors`] the host descriptors that these use.
//! [`dir_stream`] reads directories, and [`read_ahead`] bounds the entries kept between requests. [`attr`] translates
//! attributes, [`dax`] decides which files are mapped, [`gate`] which operations a worker performs itself,
//! [`hidden`] keeps names from the guest, [`buffered`] serves requests without `O_DIRECT` on files opened with it, and
//! [`gauges`] reports what is held. [`quota`] limits what the guest adds, and [`reach`] finds
//! inodes without a name through open files. [`stamps`] and [`hot_files`]
//! tell a coherence group what changes, [`host_changes`] an agent in the guest, whom [`replayed`] answers; [`validity`]
//! says how long the guest may cache. [`migration`] carries a session over to another daemon. [`noted`] writes the
//! journal of a session that survives this process, and [`intents`] what a request is about to do that must not be
//! done twice.
//!
//! A name is resolved as one component relative to its directory, without following links and without leaving the
//! directory, and only regular files and directories are ever opened. So neither a link nor a race leads out of the
//! share, with or without a sandbox.

mod attempts;
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
mod hidden;
mod host_changes;
mod hot_files;
mod inodes;
mod intents;
mod migration;
mod noted;
mod ops;
mod quota;
mod reach;
mod read_ahead;
mod replayed;
mod set_id;
mod slab;
mod stamps;
mod validity;

#[cfg(test)]
mod tests;

pub use config::{CachePolicy, Config, EVENTS_VALIDITY, FileHandles, MAX_INODES, Negotiation};
pub use dax::Dax;
pub use hidden::rules::HiddenPaths;
pub use host_changes::{HostChange, HostName};
pub use inodes::ObserveDirectories;
pub use quota::limits::QuotaLimits;

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use transom_wire::ops::init::InitFlags;

use crate::{
    Errno,
    credentials::{Credentials, Judge},
    group::Group,
    journal::Journal,
    locks::{self, Locks},
    replay::Replays,
    sysfd::{ProcFds, stat},
};
use attempts::Attempts;
use descriptors::{Descriptors, LIMIT_MIN};
use gate::Gate;
use handles::Handles;
use hidden::Hidden;
use hot_files::HotFiles;
use inodes::{Capacity, Inodes, reserve_for_observed};
use migration::Aliases;
use quota::Quota;
use read_ahead::ReadAhead;
use validity::Extended;

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
    /// `None` if no lock is taken on the host.
    locks: Option<Locks>,
    /// The host's name for the attribute with a file's capabilities, if it is not the one that the host recognises.
    capability_name: Option<Box<[u8]>>,
    lookup_gate: Gate,
    read_gate: Gate,
    readdir_gate: Gate,
    write_gate: Gate,
    attempts: Attempts,
    /// `None` without a window.
    dax: Option<Dax>,
    /// `None` if changes of the host are not announced.
    replays: Option<Replays>,
    /// `None` if the agent makes no difference to what the guest may cache.
    extended: Option<Extended>,
    /// `None` if nothing is hidden.
    hidden: Option<Hidden>,
    /// `None` if no other daemon serves the directory, or guests are not told of its changes.
    group: Option<Group>,
    hot_files: HotFiles,
    /// `None` if the session dies with this process.
    journal: Option<Arc<Journal>>,
    /// `None` if the guest may add what the host's file system holds.
    quota: Option<Quota>,
    /// What the guest calls inodes that it knows from another daemon.
    aliases: Aliases,
    /// The flags of the current session.
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
        /// The cause.
        source: Errno,
    },
    /// `/proc/self/fd` cannot be opened.
    #[error("cannot open /proc/self/fd, which every operation by descriptor needs")]
    Proc(#[source] Errno),
    /// The shared directory is neither a directory nor a regular file.
    #[error("the share is neither a directory nor a regular file but a {0:?}")]
    Kind(FileType),
    /// Inodes cannot be referenced as configured.
    #[error("inodes of the share cannot be referenced by file handles, which are mandatory")]
    Handles(#[source] Errno),
    /// Changes of the host cannot be announced.
    #[error(
        "changes cannot be announced: the file system of the share has no file handles, or its root cannot be observed"
    )]
    Events(#[source] Errno),
    /// The root of the share cannot be examined.
    #[error("cannot read the attributes of the share")]
    Root(#[source] Errno),
    /// The root of the share cannot be searched.
    #[error("cannot find what is to be hidden from the guest")]
    Hidden(#[source] Errno),
    /// Waiting for locks cannot be set up.
    #[error("cannot prepare to wait for locks of the host")]
    Locks(#[source] Errno),
    /// The rights of this process cannot be determined.
    #[error("cannot read the capabilities of this process")]
    Credentials(#[source] Errno),
}

impl Passthrough {
    /// Serves the directory or file at `path`.
    ///
    /// Call it after the process has dropped its unneeded privileges and before it starts threads.
    pub fn open(path: &Path, config: Config) -> Result<Self, Error> {
        let root = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| Error::Open { path: path.to_owned(), source })?;
        Self::new(root, ProcFds::open().map_err(Error::Proc)?, config)
    }

    /// Serves the directory or file behind `root`, an `O_PATH` descriptor, for a process that can no longer see
    /// `/proc`.
    pub fn new(root: OwnedFd, proc_fds: ProcFds, config: Config) -> Result<Self, Error> {
        let judge = if config.owners.is_identity() { Judge::Guest } else { Judge::Host };
        let credentials = Credentials::detect(judge).map_err(Error::Credentials)?;
        let limit = config.max_fds.unwrap_or_else(Descriptors::default_limit).max(LIMIT_MIN);
        let stat = stat::statx(&root, AtFlags::empty(), stat::IDENTITY).map_err(Error::Root)?;
        let extended = Extended::new(&config, &root, &stat);
        let hidden = Hidden::new(&config.hidden, &root).map_err(Error::Hidden)?;
        let (locks, lock_owners_max) = locks(&config, limit)?;
        let announces = config.events || config.notifications.is_some();
        let observe = config.observe_directories.clone().filter(|_| announces);
        let observed_max = observe.as_ref().map_or(0, |_| reserve_for_observed(limit));
        let descriptors = Arc::new(Descriptors::new(limit - lock_owners_max - observed_max));
        let proc_fds = Arc::new(proc_fds);
        let capacity = Capacity::new(config.max_inodes);
        let inodes =
            Inodes::new(root, config.inode_file_handles, Arc::clone(&proc_fds), Arc::clone(&descriptors), capacity)
                .map_err(Error::Handles)?;
        // Changes name inodes by their handles.
        let inodes = if announces { inodes.by_handle().map_err(Error::Events)? } else { inodes };
        let replays = config.events.then(Replays::default);
        let inodes = match observe {
            Some(kernel) => inodes.observed_by(kernel, observed_max).map_err(Error::Events)?,
            None => inodes,
        };
        let file_type = inodes.root().file_type;
        if !matches!(file_type, FileType::Directory | FileType::RegularFile) {
            return Err(Error::Kind(file_type));
        }
        Ok(Self {
            capability_name: capability_name(&config),
            quota: config.quota.map(|limits| Quota::new(limits, config.is_layered, config.is_upper_layer)),
            config,
            inodes,
            handles: Handles::new(descriptors),
            read_ahead: Arc::default(),
            proc_fds,
            credentials,
            locks,
            lookup_gate: Gate::default(),
            read_gate: Gate::default(),
            readdir_gate: Gate::default(),
            write_gate: Gate::default(),
            attempts: Attempts::default(),
            dax: None,
            replays,
            extended,
            hidden,
            group: None,
            hot_files: HotFiles::default(),
            journal: None,
            aliases: Aliases::default(),
            session: AtomicU64::new(0),
        })
    }

    /// Maps files into a window for the guest.
    pub fn with_dax(self, dax: Dax) -> Self {
        Self { dax: Some(dax), ..self }
    }

    /// Returns the announcements of changes, if there are any.
    pub fn replays(&self) -> Option<&Replays> {
        self.replays.as_ref()
    }

    /// Stamps all changes in the version table of `group`.
    pub fn with_group(self, group: Group) -> Self {
        Self { group: Some(group), ..self }
    }

    /// Records the session in `journal`, so that another process can go on with it.
    pub fn with_journal(self, journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), ..self }
    }

    /// Returns the coherence group.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// Returns the number of inodes that the guest knows, not counting the root.
    pub fn inode_count(&self) -> usize {
        self.inodes.capacity().known()
    }

    /// Closes descriptors that have not been used since the last call. Call it every few seconds, idle or not.
    ///
    /// Without it, files that the host deletes may keep their blocks until the guest has used thousands of others.
    pub fn tidy(&self) {
        self.inodes.close_unused();
    }

    /// Returns whether the current session has `flag`.
    fn has(&self, flag: InitFlags) -> bool {
        InitFlags::from_bits_retain(self.session.load(Relaxed)).contains(flag)
    }

    /// Checks that the share may be changed. Every operation that changes something begins with it. Errors: EROFS if
    /// the share is read-only.
    fn check_writable(&self) -> Result<(), Errno> {
        if self.config.readonly { Err(Errno::ROFS) } else { Ok(()) }
    }
}

/// Returns the locks taken on the host, and how many descriptors of `limit` they may use.
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
