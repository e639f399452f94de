//! The back end with a dirty log on a thread of this process, over a directory of the host.

use std::{
    os::unix::net::{UnixListener, UnixStream},
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use transom_daemon::backend::{BackendConfig, MIGRATION_IDLE_MAX, Monitor, serve};
use transom_frontend::{FrontEnd, Options, ram::Ram};
use transom_host::{
    migration,
    passthrough::{Config, Passthrough},
    server::Server,
};

/// A daemon that serves one front end.
pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    share: PathBuf,
    server: Arc<Server<Passthrough>>,
    /// Receives nothing; ends with the daemon.
    ended: mpsc::Receiver<()>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::serving_new(Config::default())
    }

    fn serving_new(config: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let share = directory.path().join("share");
        std::fs::create_dir(&share).unwrap();
        Self::serving(directory, share, MIGRATION_IDLE_MAX, config)
    }

    /// Starts a daemon that takes locks on the host, which do not travel.
    pub(crate) fn start_with_locks() -> Self {
        Self::serving_new(Config { posix_lock: true, ..Config::default() })
    }

    /// Starts a daemon that takes locks on the host, which travel.
    pub(crate) fn start_with_travelling_locks() -> Self {
        Self::serving_new(with_travelling_locks())
    }

    /// Starts two daemons for one share, which take locks on the host that travel.
    pub(crate) fn pair_with_locks() -> (Self, Self) {
        let first = Self::start_with_travelling_locks();
        let second =
            Self::serving(tempfile::tempdir().unwrap(), first.share(), MIGRATION_IDLE_MAX, with_travelling_locks());
        (first, second)
    }

    /// Starts a daemon for a share that another one serves too. It drops a peer that makes no progress for
    /// `idle_max`.
    pub(crate) fn beside(other: &Self, idle_max: Duration) -> Self {
        Self::serving(tempfile::tempdir().unwrap(), other.share(), idle_max, Config::default())
    }

    fn serving(directory: tempfile::TempDir, share: PathBuf, idle_max: Duration, config: Config) -> Self {
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let config = Config { allow_direct_io: true, ..config };
        let server = Arc::new(Server::new(Passthrough::open(&share, config).unwrap()));
        let backend = BackendConfig {
            versions: None,
            notifications: None,
            tag: None,
            request_queues: 2,
            poll_max: Duration::from_micros(20),
            rate: None,
            pool_threads: 1,
            window: None,
            keep_serving: false,
            ownership: std::sync::Arc::default(),
            journal: None,
            migration: Some(idle_max),
        };
        let served = server.clone();
        let (ends, ended) = mpsc::channel();
        let daemon = thread::Builder::new().name("daemon".into()).spawn(move || {
            serve(listener, served, &backend, &Arc::new(Monitor::default())).unwrap();
            drop::<mpsc::Sender<()>>(ends);
        });
        drop(daemon.unwrap());
        Self { directory, share, server, ended }
    }

    pub(crate) fn share(&self) -> PathBuf {
        self.share.clone()
    }

    /// Returns the number of requests that wait for a lock.
    pub(crate) fn waiters(&self) -> u64 {
        self.server.file_system().gauges().lock_waiters
    }

    /// Connects a guest that was migrated with its memory.
    pub(crate) fn connect_with(&self, ram: &Ram) -> FrontEnd {
        let stream = UnixStream::connect(self.directory.path().join("socket")).unwrap();
        FrontEnd::with_memory(stream, Options::default(), ram.clone()).unwrap()
    }

    pub(crate) fn connect(&self, options: Options) -> FrontEnd {
        FrontEnd::connect(&self.directory.path().join("socket"), options).unwrap()
    }
}

fn with_travelling_locks() -> Config {
    let options = migration::Options { carries_locks: true, ..migration::Options::default() };
    Config { posix_lock: true, migration: options, ..Config::default() }
}

impl Drop for Daemon {
    /// The front end has gone before.
    fn drop(&mut self) {
        let _ = self.ended.recv();
    }
}
