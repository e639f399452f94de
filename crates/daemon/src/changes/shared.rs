//! One mark for a coherence group: a daemon that starts gets the source of changes from one that runs.
//!
//! Each member listens at a socket in the group's directory and sends a duplicate of its descriptor to whoever of its
//! own user connects. All of them have the same queue of the kernel, and only the one whose turn it is reads it
//! ([`Group::watches_host`](transom_host::group::Group::watches_host)). So the next one finds there what the last one
//! has not read, and what that one had read and not stamped is covered by the epoch that its death raises. Starts take
//! turns by a lock of the directory, so that two of them do not both find nobody.
//!
//! Nobody waits for a peer without a deadline, and whatever fails leaves a daemon with a source of its own.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::{
            ffi::OsStrExt as _,
            fs::FileTypeExt as _,
            net::{UnixDatagram, UnixListener},
        },
    },
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{Acquire, Release},
        },
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant, SystemTime},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{CWD, FlockOperation, Mode, OFlags, flock, fstat, openat, readlink},
    io::Errno,
    net::{
        AddressFamily, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with,
    },
};
use tracing::debug;
use transom_watch::Watch;

use super::peer::is_own_user;
use crate::{
    listen::{Traces, open_new},
    upgrade::{receive_packet, send_once},
};

/// The sockets are `observer.PID.TIME`: the same pid may be in use in another pid namespace.
const PREFIX: &[u8] = b"observer.";
/// The longest greeting that is read.
const GREETING_MAX: usize = 128;
/// Pause before accepting again after a failure, of descriptors for example.
const ACCEPT_AGAIN_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// How long to wait for others before this daemon opens a source of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// For the start of another daemon.
    turn: Duration,
    /// For the answers of all members together. One of them may be about to start its threads.
    answers: Duration,
}

pub(super) const LIMITS: Limits = Limits { turn: Duration::from_secs(10), answers: Duration::from_secs(5) };

/// What this daemon sends to others of the group.
#[derive(Debug)]
pub(super) struct Sharing {
    listener: UnixListener,
    source: OwnedFd,
    greeting: String,
}

/// The thread that sends it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Giving {
    listener: UnixListener,
    /// Set before the listener is shut down, which a process without descriptors cannot see.
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the source of a member of the group in `directory`, or the one that `open` opens, and what to send to
/// others. `share` is the directory that the group shares. Whatever fails on the way costs a source of its own, and
/// nothing else.
///
/// # Errors
///
/// Those of `open`.
pub(super) fn join(
    directory: &Path,
    share: impl AsFd,
    limits: Limits,
    traces: &mut Traces,
    open: impl FnOnce() -> anyhow::Result<Watch>,
) -> anyhow::Result<(Watch, Option<Sharing>)> {
    let greeting = match greeting(share) {
        Ok(greeting) => greeting,
        Err(error) => {
            debug!(%error, "the source of changes is not shared");
            return Ok((open()?, None));
        }
    };
    // Released when this returns, or with the process.
    let turn = take_turn(directory, limits.turn);
    let _turn = turn.inspect_err(|error| debug!(%error, "the start of others was not waited for")).ok();
    let watch = match find(directory, &greeting, limits.answers) {
        Some(source) => Watch::from_shared(source),
        None => open()?,
    };
    let sharing = Sharing::open(directory, greeting, &watch, traces);
    let sharing = sharing.inspect_err(|error| debug!("the source of changes is not shared: {error:#}")).ok().flatten();
    Ok((watch, sharing))
}

/// Returns what a member sends with the descriptor: the version of this exchange and of what is observed, and which
/// directory the group shares. Before a daemon is in the group, that may be another one than the group's.
fn greeting(share: impl AsFd) -> Result<String, Errno> {
    let share = fstat(share)?;
    Ok(format!("transom observer 1 {} {}", share.st_dev, share.st_ino))
}

fn take_turn(directory: &Path, limit: Duration) -> Result<OwnedFd, Errno> {
    let directory = openat(CWD, directory, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let deadline = Instant::now() + limit;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => _ = poll(&mut [], Some(&LOOK_EVERY)),
            taken => return taken.map(|()| directory),
        }
    }
}

/// Asks the members one after the other. Removes the sockets of those that are gone.
fn find(directory: &Path, greeting: &str, limit: Duration) -> Option<OwnedFd> {
    let deadline = Instant::now() + limit;
    let mut found = None;
    for entry in fs::read_dir(directory).ok()?.flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let name = name.as_bytes();
        // Until a socket is complete, its name begins with a dot.
        let is_ours = name.strip_prefix(b".").unwrap_or(name).starts_with(PREFIX);
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_socket()) {
            continue;
        }
        if is_abandoned(&path) {
            _ = fs::remove_file(&path);
        } else if found.is_none() && name.starts_with(PREFIX) {
            // A member that hangs leaves time for the others.
            match ask(&path, greeting, deadline.min(Instant::now() + limit / 5)) {
                Ok(source) => found = Some(source),
                Err(error) => debug!(%error, "a member of the group does not share its source of changes"),
            }
        }
    }
    found
}

/// Returns whether no process has the socket at `path`. Does not disturb one that has it: the kernel refuses the
/// connection because of the socket's type.
fn is_abandoned(path: &Path) -> bool {
    let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(path));
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

fn ask(path: &Path, greeting: &str, deadline: Instant) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // Fails at once if the member does not accept and too many wait for it.
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    if !is_own_user(&socket)? {
        return Err(io::Error::other("it is another user's"));
    }
    wait(&socket, deadline)?;
    let mut received = [0; GREETING_MAX];
    let (len, descriptors) = receive_packet(socket.as_fd(), &mut received)?;
    match <[OwnedFd; 1]>::try_from(descriptors) {
        Ok([source]) if received[..len] == *greeting.as_bytes() && is_fanotify(&source) => Ok(source),
        _ => Err(io::Error::other("it sent something else")),
    }
}

/// Waits until there is something to read, or the end.
fn wait(socket: &OwnedFd, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left)) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Err(Errno::INTR) => {}
            ready => return ready.map(drop).map_err(io::Error::from),
        }
    }
}

fn is_fanotify(source: &OwnedFd) -> bool {
    let link = readlink(format!("/proc/self/fd/{}", source.as_raw_fd()), Vec::new());
    link.is_ok_and(|link| OsStr::from_bytes(link.to_bytes()) == "anon_inode:[fanotify]")
}

impl Sharing {
    /// Listens for others. Returns `None` if the source is not one that others can use.
    fn open(directory: &Path, greeting: String, watch: &Watch, traces: &mut Traces) -> anyhow::Result<Option<Self>> {
        let Some(source) = watch.shared().transpose()? else { return Ok(None) };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let name = format!("observer.{}.{}", process::id(), now.as_nanos());
        let listener = open_new(&directory.join(name), traces)?;
        Ok(Some(Self { listener, source, greeting }))
    }

    /// Starts to send it to whoever asks.
    pub(super) fn start(self) -> io::Result<Giving> {
        let accepting = self.listener.try_clone()?;
        let Self { listener, source, greeting } = self;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = has_ended.clone();
        let give = move || {
            loop {
                let stream = match accepting.accept() {
                    Ok((stream, _)) => stream,
                    Err(error) if is_passing(&error) && !ends.load(Acquire) => {
                        let _ = poll(&mut [], Some(&ACCEPT_AGAIN_AFTER));
                        continue;
                    }
                    // The listener is shut down.
                    Err(_) => break,
                };
                if !is_own_user(&stream).unwrap_or(false) {
                    continue;
                }
                // Never waits: an empty connection has room for a greeting.
                let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
                if let Err(error) = send_once(stream.as_fd(), greeting.as_bytes(), &[source.as_fd()], flags) {
                    debug!(%error, "a daemon that starts did not take the source of changes");
                }
            }
            // Whatever the error was, nobody waits for an answer.
            let _ = shutdown(&accepting, Shutdown::Both);
        };
        let thread = thread::Builder::new().name("observer".into()).spawn(give)?;
        Ok(Giving { listener, has_ended, thread: Some(thread) })
    }
}

/// Returns whether accepting may succeed later: this process or the host has run out of something.
fn is_passing(error: &io::Error) -> bool {
    let passing = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::CONNABORTED, Errno::INTR];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

impl Drop for Giving {
    fn drop(&mut self) {
        self.has_ended.store(true, Release);
        let _ = shutdown(&self.listener, Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "shared_test.rs"]
mod shared_test;
