//! A share with a window for a test: transomd itself, or its parts on a thread of this process.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use rustix::fs::fstat;
use transom_daemon::backend::{BackendConfig, serve};
use transom_frontend::{FrontEnd, Options, fuse::Session, message::HANG_AFTER, queue::Queue, window::Rules};
use transom_host::{
    passthrough::{Config, Dax, Passthrough},
    server::Server,
    window::{self, DaxPolicy},
};
use transom_wire::config::TAG_LEN;

/// What is mapped at once.
pub(crate) const RANGE: u64 = 2 << 20;
/// Ranges of the window of a share.
pub(crate) const RANGES: u64 = 8;
/// The queues that a test's requests go to.
pub(crate) const QUEUES: [u32; 2] = [1, 2];

/// Which front end the daemon takes the test's for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Qemu,
    Crosvm,
}

/// A daemon that serves one front end after the other.
pub(crate) struct Share {
    pub(crate) kind: Kind,
    directory: tempfile::TempDir,
    running: Running,
}

enum Running {
    Thread {
        window: Arc<window::Window>,
        /// Shares the daemon's socket; shutting it down ends the daemon.
        listener: UnixListener,
        ended: mpsc::Receiver<()>,
    },
    Process {
        child: Child,
        said: Option<thread::JoinHandle<String>>,
    },
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Qemu, Self::Crosvm];

    pub(crate) fn rules(self) -> Rules {
        match self {
            Self::Qemu => Rules::QEMU,
            Self::Crosvm => Rules::CROSVM,
        }
    }

    fn front_end(self) -> window::FrontEnd {
        match self {
            Self::Qemu => window::FrontEnd::QEMU,
            Self::Crosvm => window::FrontEnd::CROSVM,
        }
    }
}

impl Share {
    /// One of each kind in each form.
    pub(crate) fn each() -> impl Iterator<Item = Self> {
        Kind::ALL.into_iter().flat_map(|kind| [Self::thread(kind), Self::process(kind, "")])
    }

    /// In this process, where files have no padded views.
    pub(crate) fn thread(kind: Kind) -> Self {
        Self::thread_with(kind, Config::default())
    }

    pub(crate) fn thread_with(kind: Kind, config: Config) -> Self {
        let directory = directory();
        let window = Arc::new(window::Window::new(RANGES * RANGE, kind.front_end()));
        let dax = Dax::new(window.clone(), DaxPolicy::Always, None);
        let file_system = Passthrough::open(&directory.path().join("share"), config).unwrap().with_dax(dax);
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let backend = BackendConfig {
            tag: Some([b's'; TAG_LEN]),
            request_queues: QUEUES.len() as u16,
            poll_max: Duration::ZERO,
            rate: None,
            pool_threads: 4,
            window: Some(window.clone()),
            versions: None,
            notifications: None,
            keep_serving: true,
            ownership: std::sync::Arc::default(),
            journal: None,
            migration: None,
        };
        let (ends, ended) = mpsc::channel();
        let daemons_listener = listener.try_clone().unwrap();
        let daemon = thread::Builder::new().name("daemon".into()).spawn(move || {
            let server = Arc::new(Server::new(file_system));
            drop(
                serve(daemons_listener, server, &backend, &Arc::default())
                    .expect_err("it serves until accepting fails"),
            );
            ends.send(()).unwrap();
        });
        drop(daemon.unwrap());
        Self { kind, directory, running: Running::Thread { window, listener, ended } }
    }

    /// transomd with some more arguments. Tests truncate what is mapped, so nothing is guarded.
    pub(crate) fn process(kind: Kind, arguments: &str) -> Self {
        Self::guarded_with(kind, &format!("--no-dax-guard {arguments}"))
    }

    /// transomd, which lets nobody truncate what is mapped.
    pub(crate) fn guarded(kind: Kind) -> Self {
        Self::guarded_with(kind, "")
    }

    fn guarded_with(kind: Kind, arguments: &str) -> Self {
        let directory = directory();
        let at = |name: &str| directory.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_transomd"));
        command.arg("--socket-path").arg(at("socket")).arg("--shared-dir").arg(at("share"));
        command.arg("--metrics-socket").arg(at("metrics"));
        command.args(["--tag=share", "--keep-serving", "--sandbox=none", "--num-request-queues=2", "--log-level=warn"]);
        command.args(["--dax-policy=always", &format!("--dax-window={}", RANGES * RANGE)]);
        command.arg(if kind == Kind::Qemu { "--front-end=qemu" } else { "--front-end=crosvm" });
        command.args(arguments.split_whitespace()).env_remove("RUST_LOG").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let said = thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        while !at("socket").exists() {
            assert!(child.try_wait().unwrap().is_none(), "the daemon does not start: {}", said.join().unwrap());
            thread::yield_now();
        }
        Self { kind, directory, running: Running::Process { child, said: Some(said) } }
    }

    /// The number of transomd's process.
    pub(crate) fn pid(&self) -> u32 {
        match &self.running {
            Running::Process { child, .. } => child.id(),
            Running::Thread { .. } => panic!("a thread is no process"),
        }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("share")
    }

    /// A file of `len` bytes that are not zero, none like those of another `seed`.
    pub(crate) fn file(&self, name: &str, len: u64, seed: u8) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, contents(len, seed)).unwrap();
        path
    }

    pub(crate) fn connect(&self, options: Options) -> FrontEnd {
        FrontEnd::connect(&self.directory.path().join("socket"), options).unwrap()
    }

    /// A front end of this kind, and a session on its first request queue.
    pub(crate) fn session(&self) -> (FrontEnd, Session<Queue>) {
        self.session_with(self.kind.rules())
    }

    pub(crate) fn session_with(&self, rules: Rules) -> (FrontEnd, Session<Queue>) {
        let front_end = self.connect(Options { window: Some(rules), queue_size: 256, ..Options::default() });
        let queue = front_end.start_queue(QUEUES[0]).unwrap();
        (front_end, Session::begin(queue).unwrap())
    }

    /// Whether the daemon's map is the front end's, which has had nothing to refuse.
    pub(crate) fn agrees(&self, front_end: &FrontEnd) {
        let window = front_end.expect_window();
        assert_eq!(window.refusals(), Vec::<String>::new());
        let mut theirs = BTreeMap::new();
        window.mappings().iter().for_each(|mapping| *theirs.entry(mapping.file).or_insert(0) += 1);
        match &self.running {
            Running::Thread { window, .. } => {
                let of_file = |usage: &window::FileUsage| {
                    let stat = fstat(&*usage.file).unwrap();
                    ((stat.st_dev, stat.st_ino), usage.ranges)
                };
                assert_eq!(window.files().iter().map(of_file).collect::<BTreeMap<_, _>>(), theirs);
            }
            Running::Process { .. } => assert_eq!(self.ranges(), theirs.values().sum::<u64>()),
        }
    }

    /// How many ranges the daemon says are mapped.
    pub(crate) fn ranges(&self) -> u64 {
        match &self.running {
            Running::Thread { window, .. } => window.usage().ranges_mapped,
            Running::Process { .. } => self.figure("transom_window_ranges"),
        }
    }

    fn figure(&self, name: &str) -> u64 {
        let mut stream = UnixStream::connect(self.directory.path().join("metrics")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {name} in {text}")).trim().parse().unwrap()
    }

    /// Whether a session with another front end can map and read.
    pub(crate) fn is_healthy(&self) {
        self.file("healthy", RANGE, 77);
        let (front_end, mut session) = self.session();
        let nodeid = session.lookup(1, b"healthy").unwrap().nodeid.get();
        session.setupmapping(nodeid, 0, RANGE, RANGE, false).unwrap();
        assert_eq!(front_end.expect_window().read(RANGE, RANGE as usize).unwrap(), contents(RANGE, 77));
        self.agrees(&front_end);
        session.destroy().unwrap();
        assert_eq!(front_end.expect_window().mappings(), []);
        self.agrees(&front_end);
    }

    /// Ends transomd, and returns what it wrote to standard error.
    pub(crate) fn end(mut self) -> String {
        match &mut self.running {
            Running::Process { child, said } => {
                child.kill().and_then(|()| child.wait()).unwrap();
                said.take().unwrap().join().unwrap()
            }
            Running::Thread { .. } => panic!("a thread writes nothing"),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Process { child, .. } => {
                // `end` may have done it.
                let _ = child.kill().and_then(|()| child.wait());
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

fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("share")).unwrap();
    directory
}

/// Bytes that are never zero, and other ones in every page and for every `seed`.
pub(crate) fn contents(len: u64, seed: u8) -> Vec<u8> {
    let byte = |index: u64| (index.wrapping_mul(31) ^ (index >> 12).wrapping_mul(7) ^ u64::from(seed) << 1) as u8 | 1;
    (0..len).map(byte).collect()
}

/// The nodeid of a file of the share.
pub(crate) fn lookup(session: &mut Session<Queue>, path: &Path) -> u64 {
    let name = path.file_name().unwrap().as_encoded_bytes();
    session.lookup(1, name).unwrap().nodeid.get()
}
