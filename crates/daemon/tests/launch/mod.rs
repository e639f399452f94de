//! Starts the real executable for a test, as this user or as an ordinary one, and takes it down again.

#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Nobody's login on a fresh machine; all that counts is that it is not root.
pub(crate) const ORDINARY_ID: u32 = 1000;

/// Long enough for a loaded machine; only a failing test waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with a share in it, and who runs the daemon.
pub(crate) struct Bench {
    dir: TempDir,
    is_ordinary: bool,
    /// It starts a copy of the executable, which is in the folder.
    has_copy: bool,
}

impl Bench {
    /// For a daemon of this user.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("share")).unwrap();
        Self { dir, is_ordinary: false, has_copy: false }
    }

    /// For a daemon of an ordinary user, also where the test runs as root.
    pub(crate) fn of_ordinary_user() -> Self {
        let mut bench = Self::new();
        if is_root() {
            bench.copy_executable();
            fs::set_permissions(bench.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
            for path in [bench.dir.path(), &bench.share()] {
                chown(path, Some(ORDINARY_ID), Some(ORDINARY_ID)).unwrap();
            }
            bench.is_ordinary = true;
        }
        bench
    }

    /// For a daemon of this user whose executable can be replaced.
    pub(crate) fn with_executable() -> Self {
        let mut bench = Self::new();
        bench.copy_executable();
        bench
    }

    /// The executable in the folder.
    pub(crate) fn executable(&self) -> PathBuf {
        self.path().join("transomd")
    }

    /// Replaces the executable in the folder, as a package does.
    pub(crate) fn replace_executable(&self, with: &Path) {
        let new = self.path().join("transomd.new");
        // By another process: a descriptor of ours that writes to it would be inherited by what other tests start, and
        // a file that is open for writing is not executed.
        let copied = Command::new("cp").arg(with).arg(&new).status().unwrap();
        assert!(copied.success(), "cp: {copied}");
        fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
        fs::rename(&new, self.executable()).unwrap();
    }

    fn copy_executable(&mut self) {
        self.replace_executable(Path::new(env!("CARGO_BIN_EXE_transomd")));
        self.has_copy = true;
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn share(&self) -> PathBuf {
        self.dir.path().join("share")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    /// The names in the folder, without those of the bench itself.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let names = fs::read_dir(self.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "share" && name != "transomd").collect()
    }

    /// Starts `transomd` with `args`, `{S}` standing for the socket and `{D}` for the share.
    ///
    /// Where `args` contain `--fd=3`, descriptor 3 is a socket that listens there already.
    pub(crate) fn start(&self, args: &str) -> Daemon {
        self.start_with(args, |_| {})
    }

    /// As `start`, with changes to the command.
    pub(crate) fn start_with(&self, args: &str, change: impl FnOnce(&mut Command)) -> Daemon {
        self.start_under(&[], args, change)
    }

    /// As `start`, with every system call of the daemon and its threads written to `trace`.
    pub(crate) fn start_traced(&self, trace: &Path, args: &str) -> Daemon {
        let strace = ["strace", "-f", "-qq", "-s", "0", "-e", "signal=none", "-o", trace.to_str().unwrap()];
        self.start_under(&strace, args, |_| {})
    }

    /// As `start`, in a mount namespace of its own, which the shell command `mount` prepares.
    pub(crate) fn start_after(&self, mount: &str, args: &str) -> Daemon {
        let script = format!("{mount} && exec \"$@\"");
        self.start_under(&["unshare", "--mount", "sh", "-c", &script, "sh"], args, |_| {})
    }

    /// As `start`, by the command `wrapper`.
    pub(crate) fn start_under(&self, wrapper: &[&str], args: &str, change: impl FnOnce(&mut Command)) -> Daemon {
        let exe = if self.has_copy { self.executable() } else { env!("CARGO_BIN_EXE_transomd").into() };
        // Descriptor 3 by way of standard input, which is the one that a command can be given.
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$@\" 3<&0 </dev/null", "sh"]).args(wrapper).arg(exe).args(self.words(args));
        command.current_dir(self.path()).env_remove("RUST_LOG").stderr(Stdio::piped()).stdout(Stdio::piped());
        let inherits = args.contains("--fd=3") || args.contains("--fd 3");
        match inherits {
            true => command.stdin(OwnedFd::from(UnixListener::bind(self.socket()).unwrap())),
            false => command.stdin(Stdio::null()),
        };
        if self.is_ordinary {
            if inherits {
                chown(self.socket(), Some(ORDINARY_ID), Some(ORDINARY_ID)).unwrap();
            }
            command.uid(ORDINARY_ID).gid(ORDINARY_ID);
        }
        change(&mut command);
        let mut child = command.spawn().unwrap();
        // Closes the test's copy of the listening socket.
        drop(command);
        let mut stderr = child.stderr.take().unwrap();
        let said = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        Daemon { child, said: Some(said), socket: self.socket() }
    }

    /// The words of `args`, its placeholders replaced.
    pub(crate) fn words(&self, args: &str) -> Vec<String> {
        let (socket, share) = (self.socket(), self.share());
        let replace =
            |word: &str| word.replace("{S}", socket.to_str().unwrap()).replace("{D}", share.to_str().unwrap());
        args.split_whitespace().map(replace).collect()
    }
}

/// A running daemon; killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    said: Option<JoinHandle<String>>,
    socket: PathBuf,
}

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The process that serves: the keeper's child, or the one process that there is.
    pub(crate) fn serving_pid(&self) -> u32 {
        let path = format!("/proc/{0}/task/{0}/children", self.pid());
        let children = fs::read_to_string(path).unwrap_or_default();
        children.split_whitespace().next().and_then(|pid| pid.parse().ok()).unwrap_or(self.pid())
    }

    /// Connects as soon as the daemon listens.
    pub(crate) fn connect(&mut self) -> UnixStream {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(&self.socket) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "the daemon does not listen: {error}"),
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the daemon ended with {status}: {}", self.said.take().unwrap().join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns what the daemon wrote to standard error, once, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.child.try_wait().unwrap()?;
        self.said.take()?.join().ok()
    }

    /// Waits for the daemon's end. Returns its status and what it wrote to standard error.
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        };
        (status, self.said.take().unwrap().join().unwrap())
    }

    /// Kills the daemon and returns what it wrote to standard error.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.said.take().unwrap().join().unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking()
            && let Some(Ok(said)) = self.said.take().map(JoinHandle::join)
        {
            eprintln!("the daemon's log:\n{said}");
        }
    }
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether an ordinary user may create namespaces here.
pub(crate) fn has_user_namespaces() -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(["--user", "--map-current-user", "--mount", "--pid", "--net", "--fork", "true"]);
    if is_root() {
        unshare.uid(ORDINARY_ID).gid(ORDINARY_ID);
    }
    unshare.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Says why a test did not run, in the words that the summary counts.
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}
