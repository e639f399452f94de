//! A daemon that the supervisor has started: a process of the present or of a new executable.
//!
//! It is given a listening socket of its own, to which only the supervisor can connect, so that it accepts the
//! supervisor as any daemon accepts a front end; and a channel for orders.

use std::{
    ffi::OsString,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            fs::DirBuilderExt,
            net::{UnixListener, UnixStream},
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command},
};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::{FdFlags, fcntl_setfd},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with},
    process::{Pid, Signal, kill_process, kill_process_group},
};

use crate::options::SUPERVISED;
use crate::upgrade::control::{Answer, Control, Order, RingPosition, packet_pair};

/// A daemon.
#[derive(Debug)]
pub(super) struct Generation {
    child: Child,
    /// Its exit status, once its end was seen.
    status: Option<i32>,
    control: Control,
    /// Number of answers that have not come yet. A daemon answers its orders in turn.
    owed: usize,
    /// Refers to the daemon's socket, which has no name.
    door: OwnedFd,
}

impl AsFd for Generation {
    /// Readable once an answer has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }
}

/// How daemons are started.
#[derive(Debug)]
pub(super) struct Launch {
    /// The supervisor's own arguments, without its name.
    pub(super) arguments: Vec<OsString>,
    /// Where readers of the metrics connect. All daemons have it.
    pub(super) metrics: Option<UnixListener>,
}

impl Launch {
    /// Starts a daemon. It is not ready yet.
    pub(super) fn start(&self, executable: &Path) -> io::Result<Generation> {
        let (listener, door) = nameless_listener()?;
        let (ours, theirs) = packet_pair()?;
        let mut inherited = vec![listener.as_fd(), theirs.as_fd()];
        inherited.extend(self.metrics.as_ref().map(AsFd::as_fd));
        let numbers: Vec<_> = inherited.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
        let mut command = Command::new(executable);
        command.args(&self.arguments).arg(format!("{SUPERVISED}{}", numbers.join(",")));
        // Signals of a terminal reach the supervisor alone, which passes on what is meant for the daemon.
        command.process_group(0);
        let child = inheriting(&inherited, || command.spawn())?;
        // It says when it is ready.
        Ok(Generation { child, status: None, control: ours.into(), owed: 1, door })
    }
}

impl Generation {
    /// Connects to the daemon as a front end. Never waits.
    pub(super) fn connect(&self) -> io::Result<UnixStream> {
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}", self.door.as_raw_fd()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)?;
        Ok(socket.into())
    }

    /// Sends an order. Never waits.
    ///
    /// # Errors
    ///
    /// If the daemon is gone, or has not read earlier orders.
    pub(super) fn order(&mut self, order: &Order) -> io::Result<()> {
        self.control.order(order)?;
        self.owed += usize::from(!matches!(order, Order::End));
        Ok(())
    }

    /// Returns the answer to the last order, `WouldBlock` if it has not come yet, or `None` if the daemon is gone.
    ///
    /// # Errors
    ///
    /// If the daemon says something else.
    pub(super) fn answer(&mut self) -> io::Result<Option<Answer>> {
        loop {
            let Some(answer) = self.control.receive_answer()? else { return Ok(None) };
            self.owed = self.owed.checked_sub(1).ok_or_else(|| io::Error::other("an answer without an order"))?;
            // Before it come those that nobody waits for any more.
            if self.owed == 0 {
                return Ok(Some(answer));
            }
        }
    }

    /// Returns where the rings stand if the daemon says that it is another process now, after a death. Nothing else is
    /// expected of it.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if it has said nothing, `ConnectionReset` if it is gone, others if it says something else.
    pub(super) fn restarted(&self) -> io::Result<Vec<RingPosition>> {
        match self.control.receive_answer()? {
            Some(Answer::Restarted(rings)) => Ok(rings),
            Some(_) => Err(io::Error::other("an answer without an order")),
            None => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the status with which the daemon has ended, if it has: that of a shell.
    pub(super) fn ended(&mut self) -> Option<i32> {
        if self.status.is_none() {
            self.status = match self.child.try_wait() {
                Ok(None) => None,
                Ok(Some(status)) => Some(status.code().unwrap_or_else(|| {
                    let signal = status.signal().unwrap_or_default();
                    tracing::debug!(signal, pid = self.child.id(), "a daemon was killed");
                    128 + signal
                })),
                Err(error) => {
                    tracing::error!(%error, "lost the daemon's process");
                    Some(1)
                }
            };
        }
        self.status
    }

    /// Returns the daemon's process id, unless its end was seen: the number may be another process's by then.
    fn living(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed()).filter(|_| self.status.is_none())
    }

    /// Waits for the daemon's end, without a limit.
    pub(super) fn wait(&mut self) -> i32 {
        // Returns at once if the process is lost.
        let _ = self.child.wait();
        self.ended().unwrap_or(1)
    }

    /// Kills the daemon with its processes: no destructor runs.
    pub(super) fn kill(&self) {
        if let Some(pid) = self.living() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }

    /// Sends the daemon a signal. It may have ended.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.living() {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Lets the process that `start` starts inherit `descriptors`. This process has one thread, so no other inherits them.
fn inheriting<T>(descriptors: &[BorrowedFd<'_>], start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let set = |flags| descriptors.iter().try_for_each(|fd| fcntl_setfd(fd, flags));
    let started = set(FdFlags::empty()).map_err(io::Error::from).and_then(|()| start());
    set(FdFlags::CLOEXEC)?;
    started
}

/// Returns a listening socket, and a descriptor through which this process can connect to it. It has a name only for a
/// moment, in a directory that no other user can enter.
fn nameless_listener() -> io::Result<(UnixListener, OwnedFd)> {
    let directory = private_directory()?;
    let path = directory.join("socket");
    let opened = UnixListener::bind(&path).and_then(|listener| {
        let door = openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty());
        let removed = fs::remove_file(&path);
        removed.and(Ok((listener, door?)))
    });
    let removed = fs::remove_dir(&directory);
    let opened = opened?;
    removed?;
    Ok(opened)
}

fn private_directory() -> io::Result<PathBuf> {
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    let path = std::env::temp_dir().join(format!("transomd-{:016x}", u64::from_ne_bytes(random)));
    // Fails if the name is taken.
    fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}
