//! A daemon for a test: the back end with a file system in memory, on a thread of this process.

use std::{
    os::unix::net::UnixListener,
    panic,
    path::PathBuf,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use transom_daemon::backend::{BackendConfig, serve};
use transom_host::server::Server;
use transom_testkit::{
    frontend::{
        FrontEnd, Options,
        fuse::{Exchange, Session},
        message::HANG_AFTER,
        queue::Queue,
    },
    memfs::{Held, Limits, MemFs},
};

/// The names of the daemon's threads.
const DAEMON_THREADS: [&str; 5] = ["daemon", "vhost-user", "vring_worker", "pool", "lock-waiter"];
/// Panics of the daemon's threads, in any test of this process.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// The queue that a test's requests go to.
pub(crate) const REQUEST: u32 = 1;
/// Queues of the daemon: the high-priority one and two for requests.
const REQUEST_QUEUES: u16 = 2;

/// A daemon that serves one front end after the other until it is dropped.
pub(crate) struct Daemon {
    socket: PathBuf,
    server: Arc<Server<MemFs>>,
    /// Shares the daemon's socket; shutting it down ends the daemon.
    listener: UnixListener,
    ended: mpsc::Receiver<()>,
    _directory: tempfile::TempDir,
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
            pool_threads: 4,
            keep_serving: true,
        };
        count_panics();
        let (ends, ended) = mpsc::channel();
        let (daemons_listener, daemons_server) = (listener.try_clone().unwrap(), server.clone());
        let daemon = thread::Builder::new().name("daemon".into()).spawn(move || {
            let error = serve(daemons_listener, daemons_server, &config).expect_err("it serves until accepting fails");
            ends.send(drop(error)).unwrap();
        });
        drop(daemon.unwrap());
        Self { socket, server, listener, ended, _directory: directory }
    }

    /// What the file system holds.
    pub(crate) fn held(&self) -> Held {
        self.server.file_system().held()
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
    let names: Vec<_> = session.readdir(dir, 4096, false).unwrap().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [&b"."[..], b"..", b"file"]);
    session.release(nodeid, fh).unwrap();
    session.unlink(dir, b"file").unwrap();
    session.rmdir(1, b"healthy").unwrap();
    session.batch_forget(&[(nodeid, 1), (dir, 1)]).unwrap();
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let shut = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        if !thread::panicking() {
            shut.unwrap();
            self.ended.recv_timeout(HANG_AFTER).expect("the daemon ends when nobody is connected");
        }
    }
}
