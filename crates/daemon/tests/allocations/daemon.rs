//! The back end on a thread of this process, over a directory of the host.

use std::{
    os::unix::net::UnixListener,
    path::PathBuf,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use transom_daemon::backend::{BackendConfig, Monitor, serve};
use transom_frontend::{FrontEnd, Options, fuse::Session};
use transom_host::{
    passthrough::{Config, Passthrough},
    server::Server,
};
use transom_metrics::Gauges;

use crate::pages::Pages;

/// The queue that requests go to.
const REQUEST: u32 = 1;

/// A daemon that serves one front end.
pub(crate) struct Daemon {
    directory: tempfile::TempDir,
    monitor: Arc<Monitor>,
    /// Receives nothing; ends with the daemon.
    ended: mpsc::Receiver<()>,
}

impl Daemon {
    pub(crate) fn start(config: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let share = directory.path().join("share");
        std::fs::create_dir(&share).unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let server = Arc::new(Server::new(Passthrough::open(&share, config).unwrap()));
        let backend = BackendConfig {
            tag: None,
            request_queues: 1,
            poll_max: Duration::from_micros(20),
            rate: None,
            pool_threads: 1,
            window: None,
            versions: None,
            notifications: None,
            keep_serving: false,
            ownership: std::sync::Arc::default(),
            journal: None,
            migration: None,
        };
        let monitor = Arc::new(Monitor::default());
        let (ends, ended) = mpsc::channel();
        let daemons_monitor = monitor.clone();
        let daemon = thread::Builder::new().name("daemon".into()).spawn(move || {
            serve(listener, server, &backend, &daemons_monitor).unwrap();
            drop::<mpsc::Sender<()>>(ends);
        });
        drop(daemon.unwrap());
        Self { directory, monitor, ended }
    }

    pub(crate) fn share(&self) -> PathBuf {
        self.directory.path().join("share")
    }

    /// A front end with a session begun on a request queue.
    pub(crate) fn session(&self) -> (FrontEnd, Session<Pages>) {
        let options = Options { queue_size: 1024, ..Options::default() };
        let front_end = FrontEnd::connect(&self.directory.path().join("socket"), options).unwrap();
        let queue = front_end.start_queue(REQUEST).unwrap();
        (front_end, Session::begin(Pages(queue)).unwrap())
    }

    /// Waits until the daemon has nothing left to do for any request.
    pub(crate) fn settle(&self) {
        while self.monitor.snapshot(Gauges::default()).gauges.queue_depths.iter().any(|&depth| depth > 0) {
            thread::yield_now();
        }
    }
}

impl Drop for Daemon {
    /// The front end has gone before: the daemon ends, and with it what it counts.
    fn drop(&mut self) {
        let _ = self.ended.recv();
    }
}
