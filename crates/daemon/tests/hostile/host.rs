//! A daemon for a test: the back end with a file system in memory, on a thread of this process, or the executable with
//! a directory.

use std::{
    fs::File,
    io::{Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    panic,
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Arc, Mutex, Once,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use rustix::process::Pid;
use transom_conformance::memfs::{Held, Limits, MemFs};
use transom_daemon::backend::{BackendConfig, Monitor, serve};
use transom_frontend::{
    FrontEnd, Options,
    fuse::{Exchange, Session},
    message::HANG_AFTER,
    queue::Queue,
};
use transom_host::server::Server;
use transom_metrics::Gauges;

/// The names of the daemon's threads.
const DAEMON_THREADS: [&str; 5] = ["daemon", "vhost-user", "vring_worker", "pool", "lock-waiter"];
/// Panics of the daemon's threads, in any test of this process.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// The queue that a test's requests go to.
pub(crate) const REQUEST: u32 = 1;
/// Threads of the daemon for requests that wait.
pub(crate) const POOL_THREADS: usize = 4;
/// Queues of the daemon: the high-priority one and two for requests.
const REQUEST_QUEUES: u16 = 2;

/// A daemon that serves one front end after the other until it is dropped.
pub(crate) struct Daemon {
    socket: PathBuf,
    running: Running,
    directory: tempfile::TempDir,
}

enum Running {
    Thread {
        server: Arc<Server<MemFs>>,
        monitor: Arc<Monitor>,
        /// Shares the daemon's socket; shutting it down ends the daemon.
        listener: UnixListener,
        ended: mpsc::Receiver<()>,
    },
    Process {
        child: Mutex<Child>,
        log: PathBuf,
    },
}

impl Daemon {
    /// Every third operation waits on the pool, so that both ways are taken.
    pub(crate) fn start() -> Self {
        Self::with(MemFs::new(Limits::default()).deferring(3), Duration::from_micros(20))
    }

    pub(crate) fn with(fs: MemFs, poll_max: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = Arc::new(Server::new(fs));
        let config = BackendConfig {
            tag: Some(*b"share\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
            request_queues: REQUEST_QUEUES,
            poll_max,
            rate: None,
            pool_threads: POOL_THREADS,
            window: None,
            versions: None,
            notifications: None,
            keep_serving: true,
            ownership: std::sync::Arc::default(),
            journal: None,
            migration: None,
        };
        count_panics();
        let (ends, ended) = mpsc::channel();
        let monitor = Arc::new(Monitor::default());
        let (daemons_listener, daemons_server) = (listener.try_clone().unwrap(), server.clone());
        let daemons_monitor = monitor.clone();
        let daemon = thread::Builder::new().name("daemon".into()).spawn(move || {
            let error = serve(daemons_listener, daemons_server, &config, &daemons_monitor)
                .expect_err("it serves until accepting fails");
            drop(error);
            ends.send(()).unwrap();
        });
        drop(daemon.unwrap());
        Self { socket, running: Running::Thread { server, monitor, listener, ended }, directory }
    }

    /// transomd itself, with an empty directory.
    pub(crate) fn executable() -> Self {
        Self::executable_logging("warn")
    }

    /// As [`Daemon::executable`], with the log's level.
    pub(crate) fn executable_logging(level: &str) -> Self {
        Self::executable_with(&["--log-level", level])
    }

    /// As [`Daemon::executable`], with these further options.
    pub(crate) fn executable_with(options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (socket, share) = (directory.path().join("socket"), directory.path().join("share"));
        std::fs::create_dir(&share).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_transomd"));
        command.arg("--socket-path").arg(&socket).arg("--shared-dir").arg(&share);
        command.args(["--keep-serving", "--sandbox=none", "--num-request-queues=2"]);
        command.arg("--metrics-socket").arg(directory.path().join("metrics")).args(options);
        let log = directory.path().join("log");
        command.env_remove("RUST_LOG").stderr(File::create(&log).unwrap());
        let mut child = command.spawn().unwrap();
        while !socket.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the daemon does not start");
            thread::yield_now();
        }
        Self { socket, running: Running::Process { child: Mutex::new(child), log }, directory }
    }

    /// The directory that the executable shares.
    pub(crate) fn share(&self) -> PathBuf {
        self.directory.path().join("share")
    }

    /// One of the executable's metrics, by its name and labels as they stand in the text; 0 where it has no line.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let mut stream = UnixStream::connect(self.directory.path().join("metrics")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// What the file system holds; of the executable that is not known.
    pub(crate) fn held(&self) -> Held {
        self.file_system().held()
    }

    /// Requests in flight of one queue.
    pub(crate) fn queue_depth(&self, queue: u32) -> u64 {
        match &self.running {
            Running::Thread { monitor, .. } => monitor.snapshot(Gauges::default()).gauges.queue_depths[queue as usize],
            Running::Process { .. } => self.metric(&format!("transom_queue_depth_requests{{queue=\"{queue}\"}}")),
        }
    }

    /// The file system of a daemon on a thread.
    pub(crate) fn file_system(&self) -> &MemFs {
        match &self.running {
            Running::Thread { server, .. } => server.file_system(),
            Running::Process { .. } => panic!("the executable has a file system of its own"),
        }
    }

    /// The executable's process.
    pub(crate) fn pid(&self) -> Pid {
        match &self.running {
            Running::Thread { .. } => panic!("the daemon has no process of its own"),
            Running::Process { child, .. } => Pid::from_child(&child.lock().unwrap()),
        }
    }

    /// What the executable has logged.
    pub(crate) fn log(&self) -> String {
        match &self.running {
            Running::Thread { .. } => panic!("the daemon has no log of its own"),
            Running::Process { log, .. } => std::fs::read_to_string(log).unwrap(),
        }
    }

    pub(crate) fn socket(&self) -> &std::path::Path {
        &self.socket
    }

    pub(crate) fn connect(&self) -> FrontEnd {
        self.connect_with(Options::default())
    }

    pub(crate) fn connect_with(&self, options: Options) -> FrontEnd {
        FrontEnd::connect(&self.socket, options).unwrap()
    }

    /// A front end with a session begun on the first request queue.
    pub(crate) fn session(&self) -> (FrontEnd, Session<Queue>) {
        self.session_with(Options::default())
    }

    pub(crate) fn session_with(&self, options: Options) -> (FrontEnd, Session<Queue>) {
        let front_end = self.connect_with(options);
        let queue = front_end.start_queue(REQUEST).unwrap();
        (front_end, Session::begin(queue).unwrap())
    }

    /// A new front end finds an empty file system that works, and leaves it so.
    pub(crate) fn is_healthy(&self) {
        let (_front_end, mut session) = self.session();
        use_it(&mut session);
        session.destroy().unwrap();
        if let Running::Process { child, .. } = &self.running {
            assert_eq!(child.lock().unwrap().try_wait().unwrap(), None, "the daemon lives");
            return;
        }
        assert_eq!(self.held().handles, 0);
        assert_eq!(self.held().lookups, 0);
        assert_eq!(self.held().waiters, 0);
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "no thread of a daemon has panicked");
    }
}

fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if thread::current().name().is_some_and(|name| DAEMON_THREADS.contains(&name)) {
                PANICS.fetch_add(1, Ordering::Relaxed);
            }
            report(info);
        }));
    });
}

/// Uses a session a little, and leaves no trace.
pub(crate) fn use_it<E: Exchange>(session: &mut Session<E>) {
    let dir = session.mkdir(1, b"healthy", 0o755).unwrap().nodeid.get();
    let file = session.create(dir, b"file", libc::O_RDWR as u32, 0o644).unwrap();
    let (nodeid, fh) = (file.entry.nodeid.get(), file.open.fh.get());
    let data: Vec<u8> = (0..10_000u32).map(|number| number as u8).collect();
    assert_eq!(session.write(nodeid, fh, 5, &data).unwrap(), 10_000);
    assert_eq!(session.read(nodeid, fh, 5, 20_000).unwrap(), data);
    assert_eq!(session.getattr(nodeid, None).unwrap().size.get(), 10_005);
    let entries = session.readdir(dir, 4096, false).unwrap();
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    assert_eq!(names, [&b"."[..], b"..", b"file"]);
    session.release(nodeid, fh).unwrap();
    session.unlink(dir, b"file").unwrap();
    session.rmdir(1, b"healthy").unwrap();
    session.batch_forget(&[(nodeid, 1), (dir, 1)]).unwrap();
}

impl Drop for Daemon {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Process { child, .. } => {
                let child = child.get_mut().unwrap();
                child.kill().and_then(|()| child.wait()).unwrap();
            }
            Running::Thread { listener, ended, .. } => {
                let shut = rustix::net::shutdown(&*listener, rustix::net::Shutdown::Both);
                if !thread::panicking() {
                    shut.unwrap();
                    ended.recv_timeout(HANG_AFTER).expect("the daemon ends when nobody is connected");
                }
            }
        }
    }
}
