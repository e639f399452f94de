//! Starts a daemon, `transomd` or `virtiofsd`, for one directory and one connection.
//!
//! The [`Daemon`] inherits a listening socket to which we have already connected, so that there is no need to wait for
//! it, and no one else can connect, because the socket's path has been removed. Both daemons exit when their front end
//! disconnects, even if this process is killed.

use std::{
    ffi::OsString,
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStrExt as _,
            fs::FileExt as _,
            net::{UnixListener, UnixStream},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use command_fds::{CommandFdExt as _, FdMapping};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, Signal, geteuid, kill_process_group, pidfd_open},
};
use thiserror::Error;

use crate::platform::timespec;

/// The listening socket's descriptor in the daemon: the first after the standard three.
const LISTENER: i32 = 3;
/// How long a daemon may take to exit after its front end disconnected, before it is killed.
const END_MAX: Duration = Duration::from_secs(5);
/// Maximum length of the end of its output that an error quotes.
const MESSAGES_LEN_MAX: usize = 4096;

/// A daemon to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable: a path, or a name to look up in `PATH`.
    pub path: PathBuf,
    /// Additional arguments.
    pub args: Vec<OsString>,
    /// Its working directory, to which relative paths in its arguments refer; if `None` or no longer a directory, that
    /// of this process.
    pub dir: Option<PathBuf>,
}

impl Program {
    /// Returns a program without additional arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), dir: None }
    }

    /// Returns whether the executable is given as a path, rather than as a name to look up in `PATH`.
    pub(crate) fn is_path(&self) -> bool {
        self.path.as_os_str().as_bytes().contains(&b'/')
    }

    /// Returns the `transomd` beside this executable, or else the one in `PATH`.
    pub fn transomd() -> Self {
        const NAME: &str = "transomd";
        let beside = std::env::current_exe().ok().map(|this| this.with_file_name(NAME));
        Self::new(beside.filter(|path| path.is_file()).unwrap_or_else(|| NAME.into()))
    }
}

/// An error from starting a daemon.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// The program cannot be started.
    #[error("cannot start {program:?}")]
    Start {
        /// The path or name.
        program: PathBuf,
        /// The error of execve(2).
        source: io::Error,
    },
    /// There is no program of that name.
    #[error(
        "{program:?} is neither beside this program nor in PATH: install it with `cargo install --path crates/daemon`, \
         or name another daemon with --daemon"
    )]
    Missing {
        /// The name.
        program: PathBuf,
    },
    /// Something that the daemon needs cannot be created.
    #[error("cannot create {what} for the daemon")]
    Prepare {
        /// What could not be created.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
}

/// A running daemon, which ends when this is dropped. Close its connection first, or it is killed after [`END_MAX`].
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Readable once the process has ended.
    pidfd: OwnedFd,
    messages: File,
    status: Option<ExitStatus>,
}

impl Daemon {
    /// Starts `program` for `shared_dir`, and returns the connection to it.
    ///
    /// If the directory or an argument is invalid, the daemon closes the connection, and [`Self::messages`] says why.
    pub fn start(program: &Program, shared_dir: &Path) -> Result<(Self, UnixStream), DaemonError> {
        let prepare = |what| move |source| DaemonError::Prepare { what, source };
        let (listener, stream) = connected_listener().map_err(prepare("a socket"))?;
        let messages = tempfile::tempfile().map_err(prepare("a file for messages"))?;
        let output = messages.try_clone().map_err(prepare("a file for messages"))?;
        let mut command = Command::new(&program.path);
        command.arg(format!("--fd={LISTENER}"));
        command.arg("--shared-dir").arg(shared_dir).args(sandbox());
        command.args(&program.args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
        if let Some(dir) = program.dir.as_deref().filter(|dir| dir.is_dir()) {
            command.current_dir(dir);
        }
        let listener = FdMapping { parent_fd: listener.into(), child_fd: LISTENER };
        command.fd_mappings(vec![listener]).map_err(|error| prepare("a socket")(io::Error::other(error)))?;
        // Signals of the terminal, such as Ctrl-C, must not reach the daemon.
        command.process_group(0);
        let start = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound if !program.is_path() => DaemonError::Missing { program: program.path.clone() },
            _ => DaemonError::Start { program: program.path.clone(), source },
        };
        let child = command.spawn().map_err(start)?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        Ok((Self { child, pidfd: pidfd.map_err(start)?, messages, status: None }, stream))
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits up to `timeout` for the daemon to exit.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            // A signal that interrupts the poll only shortens the wait.
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timespec(timeout)));
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Returns the end of what the daemon has written.
    pub fn messages(&self) -> String {
        let mut text = [0; MESSAGES_LEN_MAX];
        let len = self.messages.metadata().map_or(0, |metadata| metadata.len());
        // Reads at an offset, because the daemon shares the file position. A failure is ignored: the caller reports
        // another error.
        let read = self.messages.read_at(&mut text, len.saturating_sub(MESSAGES_LEN_MAX as u64)).unwrap_or(0);
        String::from_utf8_lossy(&text[..read]).trim().to_owned()
    }

    /// Kills the daemon and all processes of its group.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            // The process has not been waited for, so its id and its group's cannot have been reused.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.wait(END_MAX).is_none() {
            tracing::warn!(pid = self.id(), "killing the daemon, which did not exit after its front end disconnected");
        }
        self.kill();
    }
}

/// Returns a listening socket and a connection that waits in its queue. The socket's path is already removed.
fn connected_listener() -> io::Result<(UnixListener, UnixStream)> {
    // Only this user can access the directory.
    let dir = tempfile::Builder::new().prefix("transom-").tempdir()?;
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path)?;
    let stream = UnixStream::connect(&path)?;
    Ok((listener, stream))
}

/// Returns the sandbox arguments. Root's daemon has the default sandbox. Another user's daemon would need user
/// namespaces, which not every system allows, and would know a single uid; without a sandbox, it still has only that
/// user's permissions.
fn sandbox() -> &'static [&'static str] {
    if geteuid().is_root() { &[] } else { &["--sandbox=none"] }
}
