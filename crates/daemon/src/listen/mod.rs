//! The listening socket: created at a path, or inherited.
//!
//! `open` handles leftovers of an earlier daemon at the path, a daemon that still serves it (`pid_file`), and who may
//! connect (`group`). Besides the socket it returns the `Traces` that have to be removed at the end.

mod group;
mod inherited;
mod pid_file;

use crate::options::{Endpoint, Supervised};
use crate::upgrade::control::Control;
use pid_file::PidFile;
use rustix::fs::{Gid, Mode, chown};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::umask;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why the socket cannot be opened.
#[derive(Debug, Error)]
pub enum ListenError {
    /// Another daemon serves the path.
    #[error("the socket {} is in use by {holder}", path.display())]
    InUse {
        /// The socket's path.
        path: PathBuf,
        /// The process that serves it, for the message.
        holder: String,
    },
    /// The path's directory does not exist.
    #[error("{} is not a directory, so no socket can be created in it", path.display())]
    NoParent {
        /// The directory.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// `--socket-group` names no existing group.
    #[error("there is no group '{name}'")]
    NoGroup {
        /// The name.
        name: String,
    },
    /// The descriptor given with `--fd` is unsuitable.
    #[error("descriptor {fd} is not a listening socket: {why}")]
    NotListening {
        /// The descriptor's number.
        fd: i32,
        /// What is wrong with it.
        why: String,
    },
    /// A system call failed.
    #[error("{what} {}", path.display())]
    Io {
        /// The attempted operation.
        what: &'static str,
        /// The path it was attempted on.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// A socket to accept front ends on.
#[derive(Debug)]
pub struct Listening {
    /// The socket, in blocking mode.
    pub listener: UnixListener,
    /// What to remove at the end.
    pub traces: Traces,
}

/// The files that a daemon leaves while it runs: the socket, and the locked pid file beside it.
///
/// Dropping it removes them. A process that is about to exit calls `remove` instead.
#[derive(Debug, Default)]
pub struct Traces {
    removable: Vec<PathBuf>,
    pid_file: Option<PidFile>,
}

impl Traces {
    /// Returns what a process inside the sandbox keeps: no file to remove, only the lock of the pid file.
    pub(crate) fn lock_only(mut self) -> Self {
        self.removable.clear();
        Self { removable: Vec::new(), pid_file: self.pid_file.take().map(PidFile::lock_only) }
    }

    /// Removes the files. Must be called by a process that sees the file system in which they were created.
    pub fn remove(&self) {
        // The sockets first: the next process that gets the lock finds their paths free.
        for path in &self.removable {
            let _ = fs::remove_file(path);
        }
        if let Some(file) = &self.pid_file {
            file.remove();
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        self.remove();
    }
}

/// What a daemon inherits from its supervisor besides the socket that it listens on.
#[derive(Debug)]
pub struct Supervision {
    /// Where the supervisor's orders come from.
    pub control: Control,
    /// Where readers of the metrics connect.
    pub metrics: Option<UnixListener>,
}

/// Takes over what the supervisor passes on. Must be called at most once.
///
/// # Errors
///
/// If the descriptors are not what the supervisor passes on.
pub fn supervised(by: &Supervised) -> Result<(Listening, Supervision), ListenError> {
    let listener = inherited::adopt(by.listener)?;
    let control = inherited::adopt_connected(by.control)?.into();
    let metrics = by.metrics.map(inherited::adopt).transpose()?;
    Ok((Listening { listener, traces: Traces::default() }, Supervision { control, metrics }))
}

/// Opens the socket that the options describe.
pub fn open(endpoint: &Endpoint) -> Result<Listening, ListenError> {
    match endpoint {
        Endpoint::Inherited(fd) => Ok(Listening { listener: inherited::adopt(*fd)?, traces: Traces::default() }),
        Endpoint::Path { path, group } => at_path(path, group.as_deref()),
        Endpoint::Nowhere => Ok(Listening { listener: unbound()?, traces: Traces::default() }),
    }
}

/// Creates a socket beside the front end's, accessible only to the daemon's user, and adds it to `traces`.
pub fn open_private(path: &Path, traces: &mut Traces) -> Result<UnixListener, ListenError> {
    // No lock protects this path; if a daemon answers there, it is in use.
    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse { path: path.to_owned(), holder: "another process".to_owned() });
    }
    remove_stale(path)?;
    open_new(path, traces)
}

/// Creates a socket at a path that is free, accessible only to the daemon's user, and adds it to `traces`.
pub(crate) fn open_new(path: &Path, traces: &mut Traces) -> Result<UnixListener, ListenError> {
    let listener = bind(path, None)?;
    traces.removable.push(path.to_owned());
    Ok(listener)
}

/// Returns a socket without an address.
fn unbound() -> Result<UnixListener, ListenError> {
    let failed =
        |errno: Errno| ListenError::Io { what: "cannot create", path: "a socket".into(), source: errno.into() };
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    Ok(UnixListener::from(socket.map_err(failed)?))
}

fn at_path(path: &Path, group: Option<&str>) -> Result<Listening, ListenError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !parent.is_dir() {
        return Err(ListenError::NoParent { path: parent.to_owned() });
    }
    let gid = group.map(group::resolve).transpose()?;
    let pid_file = PidFile::take(path)?;

    let result = (|| {
        remove_stale(path)?;
        bind(path, gid)
    })();
    match result {
        Ok(listener) => {
            let traces = Traces { removable: vec![path.to_owned()], pid_file: Some(pid_file) };
            Ok(Listening { listener, traces })
        }
        Err(error) => {
            pid_file.remove();
            Err(error)
        }
    }
}

/// Listens at `path`, for the owner and for `group` only.
///
/// Other programs wait for the socket to appear and connect at once, so it must be complete when it appears: it is
/// bound under a temporary name in the same directory and then renamed. If that name is too long for a socket address,
/// it is bound at `path` directly.
fn bind(path: &Path, group: Option<Gid>) -> Result<UnixListener, ListenError> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
    let first = if SocketAddr::from_pathname(&beside).is_ok() { &beside } else { path };
    // The umask restricts the socket from its creation on, which a later chmod would not.
    let before = umask(if group.is_some() { Mode::RWXO } else { Mode::RWXG | Mode::RWXO });
    let bound = UnixListener::bind(first);
    umask(before);
    let failed = |what| move |source| ListenError::Io { what, path: path.to_owned(), source };
    let listener = bound.map_err(failed("cannot create the socket"))?;
    let finish = || {
        if group.is_some() {
            chown(first, None, group).map_err(|error| ("cannot change the group of the socket", error.into()))?;
        }
        if first != path {
            fs::rename(first, path).map_err(|error| ("cannot create the socket", error))?;
        }
        Ok(())
    };
    finish().map_err(|(what, error): (_, io::Error)| {
        let _ = fs::remove_file(first);
        failed(what)(error)
    })?;
    Ok(listener)
}

/// Removes the socket of a daemon that is gone. The caller holds the lock, which proves that.
fn remove_stale(path: &Path) -> Result<(), ListenError> {
    let failed = |what, source| ListenError::Io { what, path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed("cannot look at", error)),
        Ok(metadata) if metadata.file_type().is_socket() => {
            fs::remove_file(path).map_err(|error| failed("cannot remove the stale socket", error))
        }
        Ok(_) => Err(ListenError::NotASocket { path: path.to_owned() }),
    }
}

#[cfg(test)]
mod listen_test;
