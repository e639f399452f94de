//! `transomd --upgrade`: a socket beside the daemon's own, through which an upgrade is requested and its outcome told.
//!
//! A client sends the line [`REQUEST`] and reads one line of answer. What else it does never delays the supervisor:
//! each client has [`REQUEST_MAX`] for its line, [`CLIENTS_MAX`] are connected at once, others wait to be accepted, and
//! all whose request is there when an upgrade begins get the outcome of that one.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use rustix::event::PollFlags;

use super::switch::UpgradeError;
use crate::{
    listen::{self, ListenError, Traces},
    upgrade::printable::printable,
};

/// What a client sends to have the daemon upgraded.
const REQUEST: &[u8] = b"upgrade\n";
/// How long a client may take to send it.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// The most clients at once.
const CLIENTS_MAX: usize = 16;
/// Pause before accepting again after a failure, of descriptors for example.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The beginning of the answer after an upgrade.
const UPGRADED: &str = "upgraded: ";
/// The beginning of the answer if the guest has lost the share: of [`UpgradeError::Broken`].
const BROKEN: &str = "the share is lost: ";
/// The longest answer that is read.
const ANSWER_LEN_MAX: u64 = 64 << 10;

/// Exit status if the present daemon goes on.
const STATUS_REFUSED: u8 = 1;
/// Exit status if the share is lost. 2 is that of a wrong command line.
const STATUS_BROKEN: u8 = 3;

/// Where upgrades are requested.
#[derive(Debug)]
pub(super) struct Commands {
    listener: UnixListener,
    clients: Vec<Client>,
    /// No client is accepted before, after a failure.
    paused_until: Option<Instant>,
}

/// A client whose request is not complete.
#[derive(Debug)]
struct Client {
    stream: UnixStream,
    received: Vec<u8>,
    deadline: Instant,
}

/// A client that waits for the outcome.
#[derive(Debug)]
pub(super) struct Asker(UnixStream);

impl Commands {
    /// Opens the socket that belongs to the daemon's `socket`, for the daemon's user only.
    pub(super) fn open(socket: &Path, traces: &mut Traces) -> Result<Self, ListenError> {
        let path = beside(socket);
        let listener = listen::open_private(&path, traces)?;
        listener.set_nonblocking(true).map_err(|source| ListenError::Io {
            what: "cannot prepare the socket",
            path,
            source,
        })?;
        Ok(Self { listener, clients: Vec::new(), paused_until: None })
    }

    /// Returns what to wait for before [`Commands::requests`] can do something.
    pub(super) fn awaited(&self) -> Vec<(BorrowedFd<'_>, PollFlags)> {
        let mut awaited: Vec<_> = self.clients.iter().map(|client| (client.stream.as_fd(), PollFlags::IN)).collect();
        if self.accepts() {
            awaited.push((self.listener.as_fd(), PollFlags::IN));
        }
        awaited
    }

    /// Returns when [`Commands::requests`] is to be called even if nothing came.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.clients.iter().map(|client| client.deadline).chain(self.paused_until).min()
    }

    /// Returns the clients that have requested an upgrade. Others that sent something else are told so.
    pub(super) fn requests(&mut self) -> Vec<Asker> {
        let now = Instant::now();
        self.paused_until = self.paused_until.filter(|&until| until > now);
        self.accept(now);
        let mut askers = Vec::new();
        for mut client in std::mem::take(&mut self.clients) {
            match client.receive() {
                Request::Upgrade => askers.push(Asker(client.stream)),
                Request::Incomplete if now < client.deadline => self.clients.push(client),
                Request::Incomplete => {
                    let limit = REQUEST_MAX.as_secs();
                    Asker(client.stream).say(&format!("not upgraded: no request has come within {limit} s"));
                }
                Request::Unknown => {
                    Asker(client.stream).say("not upgraded: unknown request, use transomd --upgrade");
                }
                Request::Left => {}
            }
        }
        askers
    }

    fn accepts(&self) -> bool {
        self.clients.len() < CLIENTS_MAX && self.paused_until.is_none()
    }

    fn accept(&mut self, now: Instant) {
        while self.accepts() {
            let accepted = self.listener.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(stream)
            });
            match accepted {
                Ok(stream) => {
                    self.clients.push(Client { stream, received: Vec::new(), deadline: now + REQUEST_MAX });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a request for an upgrade yet");
                    self.paused_until = Some(now + ACCEPT_AGAIN_AFTER);
                }
            }
        }
    }
}

/// What has come from a client.
enum Request {
    Upgrade,
    Incomplete,
    Unknown,
    Left,
}

impl Client {
    fn receive(&mut self) -> Request {
        let mut buffer = [0; REQUEST.len()];
        let missing = REQUEST.len() - self.received.len();
        match self.stream.read(&mut buffer[..missing]) {
            Ok(0) => return Request::Left,
            Ok(len) => self.received.extend_from_slice(&buffer[..len]),
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(_) => return Request::Left,
        }
        if self.received == REQUEST {
            Request::Upgrade
        } else if REQUEST.starts_with(&self.received) {
            Request::Incomplete
        } else {
            Request::Unknown
        }
    }
}

impl Asker {
    /// Tells the client what has come of the upgrade.
    pub(super) fn tell(self, outcome: &Result<Duration, UpgradeError>) {
        match outcome {
            Ok(pause) => {
                self.say(&format!("{UPGRADED}the guest had to wait for {:.1} ms", pause.as_secs_f64() * 1e3));
            }
            Err(error) => self.say(&error.to_string()),
        }
    }

    fn say(mut self, answer: &str) {
        // A new socket has room for it. Nobody may be there any more.
        let _ = self.0.write_all(format!("{answer}\n").as_bytes());
    }
}

/// Requests an upgrade of the daemon that serves `socket`, and prints the outcome. Returns the exit status: 0 after an
/// upgrade, 1 if the present daemon goes on, 3 if the guest has lost the share.
///
/// # Errors
///
/// If the daemon cannot be asked, or does not answer.
pub fn ask(socket: &Path) -> anyhow::Result<u8> {
    let path = beside(socket);
    let mut stream = UnixStream::connect(&path)
        .with_context(|| format!("cannot reach {}: only a daemon with --upgradable can be upgraded", path.display()))?;
    // A daemon that has ended is noticed below.
    let _ = stream.write_all(REQUEST);
    let mut answer = Vec::new();
    (&mut stream).take(ANSWER_LEN_MAX).read_to_end(&mut answer).context("the daemon does not answer")?;
    let answer = printable(String::from_utf8_lossy(&answer).trim());
    if answer.is_empty() {
        bail!("the daemon has ended");
    }
    if answer.starts_with(UPGRADED) {
        println!("{answer}");
        return Ok(0);
    }
    eprintln!("{answer}");
    Ok(if answer.starts_with(BROKEN) { STATUS_BROKEN } else { STATUS_REFUSED })
}

fn beside(socket: &Path) -> PathBuf {
    let mut name = OsString::from(socket);
    name.push(".upgrade");
    name.into()
}

/// Returns the path of a listening socket that was inherited, if it has one.
pub(super) fn path_of(listener: &UnixListener) -> Option<PathBuf> {
    let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
    fs::symlink_metadata(&path).is_ok().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_know_a_lost_share_by_the_answer() {
        let error = UpgradeError::Broken("reason".into());
        assert!(error.to_string().starts_with(BROKEN));
    }
}
