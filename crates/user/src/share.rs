//! A share in use by this process: a daemon, the device that it is, and sessions with it.
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
    cache::CacheOptions,
    dax::{Dax, DaxOptions},
    device::{DeviceError, Settings, VirtioFs},
    dma::{DmaChoice, WhenFull},
    session::{Session, SessionConfig, SessionError},
    volume::Volume,
};
use transom_wire::ops::init::InitFlags;

use crate::{
    arena::{self, Arena},
    daemon::{Daemon, DaemonError, Program},
    platform::Process,
    transport::{ConnectError, VhostUser},
    window::{Area, WindowUse},
};

/// The tag of a daemon that tells none. Nobody mounts by it here.
const TAG: &[u8] = b"share";
/// How long a request may wait for room in the arena: callers that each hold a part of it must not wait for ever.
const ROOM_MAX: Duration = Duration::from_secs(30);
/// How long a daemon that has closed the connection may take to end, so that its message can be told.
const LAST_WORDS_MAX: Duration = Duration::from_secs(2);

/// The device of a daemon.
pub type Device = VirtioFs<Process, VhostUser>;

/// A connection to a share, which ends with the last session on it, and with it a daemon that was started for it.
pub struct Share {
    builder: Builder,
    device: Arc<Device>,
}

/// Where the share is, and how it is used.
#[derive(Debug, Clone)]
#[must_use = "nothing happens before `connect`"]
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

/// Why a share cannot be used.
#[derive(Debug, Error)]
pub enum ShareError {
    /// Neither a socket nor a directory was given.
    #[error("neither a socket nor a directory is given")]
    Nowhere,
    /// Nobody listens there, or it cannot be reached.
    #[error("cannot connect to {path:?}")]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// What connect(2) said.
        source: io::Error,
    },
    /// The daemon cannot be started.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The daemon that was started has ended.
    #[error("{program:?} has ended ({status}): {messages}")]
    Ended {
        /// Its program.
        program: PathBuf,
        /// How it ended.
        status: std::process::ExitStatus,
        /// The last that it wrote.
        messages: String,
    },
    /// The other side is no vhost-user back end of the right kind.
    #[error("no file system at {name:?}")]
    Connect {
        /// The socket, or the daemon's program.
        name: PathBuf,
        /// What is wrong.
        source: ConnectError,
    },
    /// The device could not be brought up.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No session began.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// There is no memory to share.
    #[error("cannot make memory to share with the daemon")]
    Arena(#[source] io::Error),
}

impl Share {
    /// A share that is yet to be named.
    pub fn builder() -> Builder {
        Builder {
            source: Source::Nowhere,
            program: None,
            arena_len_bytes: arena::LEN_BYTES_DEFAULT,
            settings: Settings::default(),
        }
    }

    /// The device, for its counters and as a channel.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Begins a session. A new one ends the one before, on the server's side.
    ///
    /// Blocks until the server has answered.
    pub fn session(&self, config: SessionConfig) -> Result<Session<Process>, ShareError> {
        let channel = Arc::clone(&self.device);
        Ok(Session::begin(channel, Arc::new(Process), config)?)
    }

    /// Where the daemon maps files, if it does: the memory for a volume with a window.
    pub fn window(&self) -> Option<Arc<Area>> {
        self.device.transport().window().cloned()
    }

    /// A file system on a session of its own, whose files are mapped as `dax` says where the daemon has a window.
    pub fn volume(
        &self,
        config: SessionConfig,
        options: CacheOptions,
        dax: DaxOptions,
    ) -> Result<Volume<Process>, ShareError> {
        let Some(area) = self.window().filter(|_| dax.dax != Dax::Never) else {
            return Ok(Volume::new(self.session(config)?, options));
        };
        let marks = if dax.dax == Dax::Inode { InitFlags::HAS_INODE_DAX } else { InitFlags::empty() };
        let session = self.session(config.with(InitFlags::MAP_ALIGNMENT | marks))?;
        Ok(Volume::with_window(session, options, area, dax))
    }

    /// Whether the daemon has hung up: every operation fails with ENOTCONN from then on.
    pub fn is_gone(&self) -> bool {
        self.device.transport().is_gone()
    }

    /// Connects again, to the same socket or to a new daemon for the same directory.
    ///
    /// What sessions on the old connection wait for fails, if it has not yet; they stay as they are.
    pub fn reconnect(&mut self) -> Result<(), ShareError> {
        self.device.transport().hang_up();
        self.device = self.builder.device()?;
        Ok(())
    }
}

impl Builder {
    /// The share of a daemon that listens at `path`.
    pub fn socket(self, path: impl AsRef<Path>) -> Self {
        Self { source: Source::Socket(path.as_ref().to_owned()), ..self }
    }

    /// The directory `path`, by a daemon that is started for it.
    pub fn shared_dir(self, path: impl AsRef<Path>) -> Self {
        Self { source: Source::Directory(path.as_ref().to_owned()), ..self }
    }

    /// The daemon to start for [`Self::shared_dir`]; else `transomd`.
    pub fn daemon(self, program: Program) -> Self {
        Self { program: Some(program), ..self }
    }

    /// Request queues to use at most; the daemon may have fewer.
    pub fn queues(mut self, count: u16) -> Self {
        self.settings.request_queues_max = count;
        self
    }

    /// Bytes of memory to share with the daemon, which bound the data of requests in flight.
    pub fn arena_len_bytes(self, arena_len_bytes: usize) -> Self {
        Self { arena_len_bytes, ..self }
    }

    /// How the device is driven.
    pub fn settings(self, settings: Settings) -> Self {
        Self { settings, ..self }
    }

    /// Connects, and brings the device up.
    ///
    /// Blocks until the daemon has answered, with a bound.
    pub fn connect(self) -> Result<Share, ShareError> {
        let builder = self.anchored();
        let device = builder.device()?;
        Ok(Share { builder, device })
    }

    fn device(&self) -> Result<Arc<Device>, ShareError> {
        let arena = Arc::new(Arena::new(self.arena_len_bytes).map_err(ShareError::Arena)?);
        let transport = self.transport(&arena, WindowUse::Memory)?;
        let dma = DmaChoice::always(Arc::new(arena.pool(WhenFull::Wait(ROOM_MAX.as_nanos() as u64))));
        Ok(Arc::new(VirtioFs::new(transport, Arc::new(Process), &dma, self.settings)?))
    }

    /// The daemon, with `arena` handed over and no queue started.
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

    /// The same wherever this process goes later: relative paths begin where it is now, also those that the daemon is told.
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

    /// What is looked for by its path whenever there is to be a daemon.
    pub fn needed_paths(&self) -> impl Iterator<Item = &Path> {
        let program = self.program.as_ref().filter(|program| self.starts_daemon() && program.is_path());
        self.source_path().into_iter().chain(program.map(|program| program.path.as_path()))
    }

    /// Has the daemon start where this process is, if `is_unwanted` says so of the directory that was remembered.
    pub fn forget_dir_if(mut self, is_unwanted: impl FnOnce(&Path) -> bool) -> Self {
        if let Some(program) = &mut self.program {
            program.dir.take_if(|dir| is_unwanted(dir));
        }
        self
    }

    /// Where the share comes from: a socket, or a directory.
    pub fn source_path(&self) -> Option<&Path> {
        match &self.source {
            Source::Nowhere => None,
            Source::Socket(path) | Source::Directory(path) => Some(path),
        }
    }

    /// Whether a daemon is started rather than connected to.
    pub fn starts_daemon(&self) -> bool {
        matches!(self.source, Source::Directory(_))
    }

    /// What [`Self::queues`] or [`Self::settings`] have set.
    pub fn queues_max(&self) -> u16 {
        self.settings.request_queues_max
    }

    /// Starts a daemon, which ends with the transport.
    fn start(&self, shared_dir: &Path, arena: &Arc<Arena>, window_use: WindowUse) -> Result<VhostUser, ShareError> {
        let program = self.program.clone().unwrap_or_else(Program::transomd);
        let (mut daemon, stream) = Daemon::start(&program, shared_dir)?;
        match VhostUser::connect_for(stream, Arc::clone(arena), TAG, window_use) {
            Ok(transport) => Ok(transport.with_daemon(daemon)),
            Err(source) => Err(match daemon.wait(LAST_WORDS_MAX) {
                Some(status) => ShareError::Ended { program: program.path, status, messages: daemon.messages() },
                None => {
                    daemon.kill();
                    ShareError::Connect { name: program.path, source }
                }
            }),
        }
    }
}
