//! A daemon of our own: `transomd` or `virtiofsd`, started for one directory and one connection.
//!
//! The daemon inherits a socket that listens already, and on which we are connected before it starts: nobody has to
//! look whether it is ready, and the socket's path is gone before anybody else finds it. Both kinds of daemon end when
//! their front end leaves, also when this process is killed.

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

/// The listening socket's number in the daemon: the first behind the three that every process has.
const LISTENER: i32 = 3;
/// How long a daemon may take to end once its front end has left; then it is killed.
const END_MAX: Duration = Duration::from_secs(5);
/// As much of its messages as an error repeats, from the end.
const MESSAGES_LEN_MAX: usize = 4096;

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable: a path, or a name on `PATH`.
    pub path: PathBuf,
    /// Arguments behind those that it always gets.
    pub args: Vec<OsString>,
    /// Where it starts, for relative paths among its arguments, while that is a directory; else where this process is.
    pub dir: Option<PathBuf>,
}

impl Program {
    /// The executable without further arguments.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), args: Vec::new(), dir: None }
    }

    /// Whether `path` is one, rather than a name on `PATH`.
    pub(crate) fn is_path(&self) -> bool {
        self.path.as_os_str().as_bytes().contains(&b'/')
    }

    /// `transomd` where there is one beside this executable, else by its name on `PATH`.
    pub fn transomd() -> Self {
        const NAME: &str = "transomd";
        let beside = std::env::current_exe().ok().map(|this| this.with_file_name(NAME));
        Self::new(beside.filter(|path| path.is_file()).unwrap_or_else(|| NAME.into()))
    }
}

/// Why there is no daemon.
#[derive(Debug, Error)]
pub enum DaemonError {
    /// Its program cannot be started.
    #[error("cannot start {program:?}")]
    Start {
        /// Its path or name.
        program: PathBuf,
        /// What execve(2) said.
        source: io::Error,
    },
    /// What it needs cannot be made.
    #[error("cannot prepare {what}")]
    Prepare {
        /// What.
        what: &'static str,
        /// The reason.
        source: io::Error,
    },
}

/// A daemon that runs; dropping it ends it.
///
/// Its connection is to be closed before, or it is killed after [`END_MAX`].
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    /// Readable once the process has ended.
    pidfd: OwnedFd,
    messages: File,
    status: Option<ExitStatus>,
}

impl Daemon {
    /// Starts `program` for `shared_dir`, and gives the connection to it.
    ///
    /// What is wrong with the directory or the arguments shows as the end of the connection, and then in
    /// [`Self::messages`].
    pub fn start(program: &Program, shared_dir: &Path) -> Result<(Self, UnixStream), DaemonError> {
        let prepare = |what| move |source| DaemonError::Prepare { what, source };
        let (listener, stream) = connected_listener().map_err(prepare("a socket"))?;
        let messages = tempfile::tempfile().map_err(prepare("a file for the daemon's messages"))?;
        let output = messages.try_clone().map_err(prepare("a file for the daemon's messages"))?;
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
        // What the terminal sends to this process's group, such as Ctrl-C, is not for the daemon.
        command.process_group(0);
        let start = |source| DaemonError::Start { program: program.path.clone(), source };
        let child = command.spawn().map_err(start)?;
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(io::Error::from);
        Ok((Self { child, pidfd: pidfd.map_err(start)?, messages, status: None }, stream))
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended, up to `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        if self.status.is_none() {
            // A signal that ends the poll early only makes this kill sooner.
            let _ = poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&timespec(timeout)));
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// What it has written, the last of it.
    pub fn messages(&self) -> String {
        let mut text = [0; MESSAGES_LEN_MAX];
        let len = self.messages.metadata().map_or(0, |metadata| metadata.len());
        // The daemon's own position stays. Messages that cannot be read are as none: there is an error to tell already.
        let read = self.messages.read_at(&mut text, len.saturating_sub(MESSAGES_LEN_MAX as u64)).unwrap_or(0);
        String::from_utf8_lossy(&text[..read]).trim().to_owned()
    }

    /// Kills it, and whatever it has started, at once.
    pub fn kill(&mut self) {
        if self.status.is_none() {
            // A process not yet waited for keeps its id, and with it its group's: nobody else is meant.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            self.status = self.child.wait().ok();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.wait(END_MAX).is_none() {
            tracing::warn!(pid = self.id(), "the daemon does not end by itself, and is killed");
        }
        self.kill();
    }
}

/// A listening socket and a connection that waits in its queue; the socket's path is removed again.
fn connected_listener() -> io::Result<(UnixListener, UnixStream)> {
    // Only this user can look into it.
    let dir = tempfile::Builder::new().prefix("transom-").tempdir()?;
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path)?;
    let stream = UnixStream::connect(&path)?;
    Ok((listener, stream))
}

/// Root's daemon has the usual sandbox. An ordinary user's would need user namespaces, which not every system gives,
/// and would know a single uid; it can do no more than the user that has started it for himself.
fn sandbox() -> &'static [&'static str] {
    if geteuid().is_root() { &[] } else { &["--sandbox=none"] }
}
