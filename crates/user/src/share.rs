//! A share in use by this process: a connection to a daemon, its device, and sessions.
//!
//! ```no_run
//! use transom_user::share::Share;
//!
//! let share = Share::builder().shared_dir("/srv/share").connect()?;
//! let session = share.session(Default::default())?;
//! # Ok::<(), transom_user::share::ShareError>(())
//! ```

use std::{
    io,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use transom_guest::{
    cache::{CacheMode, CacheOptions, Versions},
    dax::{Dax, DaxOptions, WindowMemory},
    device::{DeviceError, Settings, VirtioFs},
    dma::{DmaChoice, WhenFull},
    session::{Session, SessionConfig, SessionError},
    volume::{Regions, Volume},
};
use transom_versions::Reader;
use transom_wire::ops::init::InitFlags;

use crate::{
    arena::{self, Arena},
    daemon::{Daemon, DaemonError, Program},
    platform::Process,
    transport::{ConnectError, VhostUser},
    window::{Area, VersionTable, WindowUse},
};

/// The tag for a daemon that reports none. It is not used for mounting.
const TAG: &[u8] = b"share";
/// How long a request may wait for memory of the arena, because callers that each hold a part of it must not wait
/// forever.
const ARENA_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long to wait for a daemon that closed the connection to exit, so that an error can quote its messages.
const EXIT_WAIT_MAX: Duration = Duration::from_secs(2);

/// The device of a share.
pub type Device = VirtioFs<Process, VhostUser>;

/// A connection to a share. When it and its last session are dropped, a daemon that was started for it ends.
pub struct Share {
    builder: Builder,
    device: Arc<Device>,
}

/// Configures a connection to a share.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing before `connect`"]
pub struct Builder {
    source: Source,
    program: Option<Program>,
    arena_len_bytes: usize,
    settings: Settings,
}

#[derive(Debug, Clone)]
enum Source {
    Nowhere,
    Socket(PathBuf),
    Directory(PathBuf),
}

/// An error from connecting to a share.
#[derive(Debug, Error)]
pub enum ShareError {
    /// Neither a socket nor a directory was given.
    #[error("no share given: name a socket or a directory")]
    Nowhere,
    /// No daemon listens at the socket, or it may not be opened.
    #[error("cannot connect to {path:?}")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The error of connect(2).
        source: io::Error,
    },
    /// The daemon cannot be started.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The daemon that was started exited.
    #[error("{program:?} exited ({status}): {messages}")]
    Ended {
        /// The program.
        program: PathBuf,
        /// The exit status.
        status: std::process::ExitStatus,
        /// The end of its output.
        messages: String,
    },
    /// The other side is not a vhost-user back end for a file system.
    #[error("no virtio-fs device at {name:?}")]
    Connect {
        /// The socket, or the daemon's program.
        name: PathBuf,
        /// The cause.
        source: ConnectError,
    },
    /// The device cannot be initialised.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The session cannot be started.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The shared memory cannot be allocated.
    #[error("cannot allocate the memory to share with the daemon")]
    Arena(#[source] io::Error),
}

impl Share {
    /// Returns a builder without a socket or directory.
    pub fn builder() -> Builder {
        Builder {
            source: Source::Nowhere,
            program: None,
            arena_len_bytes: arena::LEN_BYTES_DEFAULT,
            settings: Settings::default(),
        }
    }

    /// Returns the device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Starts a session. On the server's side, this ends the previous one.
    ///
    /// Blocks until the server has answered.
    pub fn session(&self, config: SessionConfig) -> Result<Session<Process>, ShareError> {
        let channel = Arc::clone(&self.device);
        Ok(Session::begin(channel, Arc::new(Process), config)?)
    }

    /// Returns the window into which the daemon maps files, if it has one.
    pub fn window(&self) -> Option<Arc<Area>> {
        self.device.transport().window().cloned()
    }

    /// Returns the version table of the daemon's coherence group, if it is in one. A table that cannot be used counts
    /// as none, and a message says why.
    pub fn versions(&self) -> Option<Reader<VersionTable>> {
        let reader = Reader::new(self.device.transport().versions()?.clone());
        reader.inspect_err(|error| tracing::warn!(%error, "the daemon's version table cannot be used")).ok()
    }

    /// Starts a session and returns a file system on it. If the daemon has a window, `dax` says which files are mapped.
    /// In [`CacheMode::Shared`], the version table of the daemon's coherence group decides what is cached; without
    /// a group, nothing is. There, what is cached survives this guest's own changes, unless
    /// `config` is [without](SessionConfig::without) OWN_CHANGES.
    pub fn volume(
        &self,
        config: SessionConfig,
        options: CacheOptions,
        dax: DaxOptions,
    ) -> Result<Volume<Process>, ShareError> {
        let versions = match options.mode {
            CacheMode::Shared => self.table(),
            CacheMode::None | CacheMode::Auto | CacheMode::Always => None,
        };
        let window = self.window().filter(|_| dax.dax != Dax::Never);
        let flags = match dax.dax {
            _ if window.is_none() => InitFlags::empty(),
            Dax::Inode => InitFlags::MAP_ALIGNMENT | InitFlags::HAS_INODE_DAX,
            Dax::Always | Dax::Never => InitFlags::MAP_ALIGNMENT,
        };
        let window = window.map(|area| (area as Arc<dyn WindowMemory>, dax));
        let own_changes = if versions.is_some() { InitFlags::OWN_CHANGES } else { InitFlags::empty() };
        let session = self.session(config.with(flags).unless_refused(own_changes))?;
        Ok(Volume::with_regions(session, options, Regions { window, versions }))
    }

    /// Returns the version table for a volume. One that cannot be used counts as none, and a message says why.
    fn table(&self) -> Option<Versions> {
        let table = Versions::new(Arc::new(self.device.transport().versions()?.clone()));
        table.inspect_err(|error| tracing::warn!(%error, "the daemon's version table cannot be used")).ok()
    }

    /// Returns whether the daemon closed the connection. Every operation then fails with ENOTCONN.
    pub fn is_gone(&self) -> bool {
        self.device.transport().is_gone()
    }

    /// Connects again, to the same socket or to a new daemon for the same directory.
    ///
    /// Pending operations of sessions on the old connection fail.
    pub fn reconnect(&mut self) -> Result<(), ShareError> {
        self.device.transport().hang_up();
        self.device = self.builder.device()?;
        Ok(())
    }
}

impl Builder {
    /// Uses the share of the daemon that listens at `path`.
    pub fn socket(self, path: impl AsRef<Path>) -> Self {
        Self { source: Source::Socket(path.as_ref().to_owned()), ..self }
    }

    /// Starts a daemon that shares the directory `path`.
    pub fn shared_dir(self, path: impl AsRef<Path>) -> Self {
        Self { source: Source::Directory(path.as_ref().to_owned()), ..self }
    }

    /// Sets the daemon to start for [`Self::shared_dir`]. The default is `transomd`.
    pub fn daemon(self, program: Program) -> Self {
        Self { program: Some(program), ..self }
    }

    /// Sets the maximum number of request queues; the daemon may have fewer. The default is the number of processors
    /// that the thread that connects may use.
    pub fn queues(mut self, count: u16) -> Self {
        self.settings.request_queues_max = Some(count);
        self
    }

    /// Sets the length of the memory to share with the daemon, in bytes. It bounds the data of requests in flight.
    pub fn arena_len_bytes(self, arena_len_bytes: usize) -> Self {
        Self { arena_len_bytes, ..self }
    }

    /// Sets the options of the device driver.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Connects and initialises the device. Blocks until the daemon has answered, with a timeout.
    pub fn connect(self) -> Result<Share, ShareError> {
        let builder = self.anchored();
        let device = builder.device()?;
        Ok(Share { builder, device })
    }

    fn device(&self) -> Result<Arc<Device>, ShareError> {
        let arena = Arc::new(Arena::new(self.arena_len_bytes).map_err(ShareError::Arena)?);
        let transport = self.transport(&arena, WindowUse::Memory)?;
        let dma = DmaChoice::always(Arc::new(arena.pool(WhenFull::Wait(ARENA_WAIT_MAX.as_nanos() as u64))));
        Ok(Arc::new(VirtioFs::new(transport, Arc::new(Process), &dma, self.settings)?))
    }

    /// Connects to the daemon and shares `arena` with it. No queue is started.
    pub fn transport(&self, arena: &Arc<Arena>, window_use: WindowUse) -> Result<VhostUser, ShareError> {
        match &self.source {
            Source::Nowhere => Err(ShareError::Nowhere),
            Source::Socket(path) => {
                let connect = |source| ShareError::Socket { path: path.clone(), source };
                let stream = UnixStream::connect(path).map_err(connect)?;
                VhostUser::connect_for(stream, Arc::clone(arena), TAG, window_use)
                    .map_err(|source| ShareError::Connect { name: path.clone(), source })
            }
            Source::Directory(path) => self.start(path, arena, window_use),
        }
    }

    /// Makes relative paths, also those in the daemon's arguments, refer to the current directory even if this process
    /// changes it later.
    pub fn anchored(self) -> Self {
        let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let source = match self.source {
            Source::Nowhere => Source::Nowhere,
            Source::Socket(path) => Source::Socket(absolute(path)),
            Source::Directory(path) => Source::Directory(absolute(path)),
        };
        let mut program = self.program.unwrap_or_else(Program::transomd);
        if program.is_path() {
            program.path = absolute(program.path);
        }
        program.dir = program.dir.map(absolute).or_else(|| std::env::current_dir().ok());
        Self { source, program: Some(program), ..self }
    }

    /// Returns the paths that are needed each time a connection is made.
    pub fn needed_paths(&self) -> impl Iterator<Item = &Path> {
        let program = self.program.as_ref().filter(|program| self.starts_daemon() && program.is_path());
        self.source_path().into_iter().chain(program.map(|program| program.path.as_path()))
    }

    /// Forgets the working directory for the daemon if `is_unwanted` returns true for it; the daemon then starts in
    /// that of this process.
    pub fn forget_dir_if(mut self, is_unwanted: impl FnOnce(&Path) -> bool) -> Self {
        if let Some(program) = &mut self.program {
            program.dir.take_if(|dir| is_unwanted(dir));
        }
        self
    }

    /// Returns the path of the socket or the shared directory.
    pub fn source_path(&self) -> Option<&Path> {
        match &self.source {
            Source::Nowhere => None,
            Source::Socket(path) | Source::Directory(path) => Some(path),
        }
    }

    /// Returns whether a daemon is started.
    pub fn starts_daemon(&self) -> bool {
        matches!(self.source, Source::Directory(_))
    }

    /// Returns the maximum number of request queues, if one was set.
    pub fn queues_max(&self) -> Option<u16> {
        self.settings.request_queues_max
    }

    /// Starts a daemon, which ends when the transport is dropped.
    fn start(&self, shared_dir: &Path, arena: &Arc<Arena>, window_use: WindowUse) -> Result<VhostUser, ShareError> {
        let program = self.program.clone().unwrap_or_else(Program::transomd);
        let (mut daemon, stream) = Daemon::start(&program, shared_dir)?;
        match VhostUser::connect_for(stream, Arc::clone(arena), TAG, window_use) {
            Ok(transport) => Ok(transport.with_daemon(daemon)),
            Err(source) => Err(match daemon.wait(EXIT_WAIT_MAX) {
                Some(status) => ShareError::Ended { program: program.path, status, messages: daemon.messages() },
                None => {
                    daemon.kill();
                    ShareError::Connect { name: program.path, source }
                }
            }),
        }
    }
}
