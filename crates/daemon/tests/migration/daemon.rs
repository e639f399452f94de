//! The back end with a dirty log on a thread of this process, over a directory of the host.

use std::{
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use transom_daemon::backend::{BackendConfig, MIGRATION_IDLE_MAX, Monitor, serve};
use transom_frontend::{FrontEnd, Options};
use transom_host::{
    passthrough::{Config, Passthrough},
    server::Server,
};

/// A daemon that serves one front end.
pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    share: PathBuf,
    /// Receives nothing; ends with the daemon.
    ended: mpsc::Receiver<()>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let share = directory.path().join("share");
        std::fs::create_dir(&share).unwrap();
        Self::serving(directory, share, MIGRATION_IDLE_MAX)
    }

    /// Starts a daemon for a share that another one serves too. It drops a peer that makes no progress for
    /// `idle_max`.
    pub(crate) fn beside(other: &Self, idle_max: Duration) -> Self {
        Self::serving(tempfile::tempdir().unwrap(), other.share(), idle_max)
    }

    fn serving(directory: tempfile::TempDir, share: PathBuf, idle_max: Duration) -> Self {
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let config = Config { allow_direct_io: true, ..Config::default() };
        let server = Arc::new(Server::new(Passthrough::open(&share, config).unwrap()));
        let backend = BackendConfig {
            versions: None,
            tag: None,
            request_queues: 1,
            poll_max: Duration::from_micros(20),
            rate: None,
            pool_threads: 1,
            window: None,
            keep_serving: false,
            ownership: std::sync::Arc::default(),
            journal: None,
            migration: Some(idle_max),
        };
        let (ends, ended) = mpsc::channel();
        let daemon = thread::Builder::new().name("daemon".into()).spawn(move || {
            serve(listener, server, &backend, &Arc::new(Monitor::default())).unwrap();
            drop::<mpsc::Sender<()>>(ends);
        });
        drop(daemon.unwrap());
        Self { directory, share, ended }
    }

    pub(crate) fn share(&self) -> PathBuf {
        self.share.clone()
    }

    pub(crate) fn connect(&self, options: Options) -> FrontEnd {
        FrontEnd::connect(&self.directory.path().join("socket"), options).unwrap()
    }
}

impl Drop for Daemon {
    /// The front end has gone before.
    fn drop(&mut self) {
        let _ = self.ended.recv();
    }
}
