//! A daemon that is watched: reads its figures and keeps the last two readings.
//!
//! Whoever listens at the path may be anything: what it sends is bounded in bytes and in time.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use transom_host::metrics::Report;

/// For connecting, and again for the whole answer. A daemon needs a millisecond; a stopped one keeps the others waiting.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer. One with every operation, every error and hundreds of queues is below 64 KiB.
const ANSWER_LEN_MAX: u64 = 1 << 20;
/// The layout of reports that this program knows.
const LAYOUT: u32 = 1;

/// A daemon's metrics socket and what was read there.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    last: Option<Report>,
    /// The reading before `last`, of the same run of the daemon.
    previous: Option<Report>,
    /// Why the newest attempt gave nothing.
    problem: Option<String>,
}

impl Source {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), last: None, previous: None, problem: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The newest figures, and those an interval before them if the daemon ran then.
    pub(super) fn readings(&self) -> Option<(&Report, Option<&Report>)> {
        self.last.as_ref().map(|last| (last, self.previous.as_ref()))
    }

    /// Why there are no new figures, if there are none.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Reads the figures; blocks for [`ANSWER_TIME_MAX`], twice at most.
    pub(super) fn read(&mut self) -> Result<&Report> {
        match fetch(&self.path) {
            Ok(report) => {
                self.problem = None;
                // A daemon that was started anew counts from 0.
                let is_same_run = |last: &Report| last.uptime_seconds < report.uptime_seconds;
                self.previous = self.last.take().filter(is_same_run);
                Ok(self.last.insert(report))
            }
            Err(error) => {
                self.problem = Some(format!("{error:#}"));
                Err(error)
            }
        }
    }
}

fn fetch(path: &Path) -> Result<Report> {
    let stream = open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("there is no socket {path:?}: a daemon makes it with --metrics-socket"),
        ErrorKind::ConnectionRefused => {
            anyhow!("nobody listens at {path:?}: the daemon has ended, or this is no socket")
        }
        ErrorKind::PermissionDenied => {
            anyhow!("{path:?} may not be opened: only the user that runs the daemon, and root, can read it")
        }
        _ => anyhow!("cannot connect to {path:?}: {error}"),
    })?;
    let answer = ask(stream).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            anyhow!("{path:?} did not answer within {} s", ANSWER_TIME_MAX.as_secs())
        }
        _ => anyhow!("cannot read from {path:?}: {error}"),
    })?;
    parse(&answer).with_context(|| format!("{path:?} is not the metrics socket of a transomd that this program knows"))
}

/// Connects; fails where the listener's queue stays full, rather than wait for ever.
fn open(path: &Path) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER_TIME_MAX))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

fn ask(mut stream: UnixStream) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + ANSWER_TIME_MAX;
    stream.write_all(b"GET /json HTTP/1.0\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut chunk = [0; 16384];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > ANSWER_LEN_MAX {
            return Err(io::Error::other(format!("the answer exceeds {ANSWER_LEN_MAX} bytes")));
        }
    }
}

fn parse(answer: &[u8]) -> Result<Report> {
    /// The one field that every layout has.
    #[derive(serde::Deserialize)]
    struct Layout {
        layout: u32,
    }
    ensure!(!answer.is_empty(), "it closed the connection without an answer");
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").context("its answer is not HTTP")?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let status = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    if !(status.starts_with(b"HTTP/1.") && status.get(8..12) == Some(b" 200")) {
        bail!("it answered {:?}", String::from_utf8_lossy(status));
    }
    let Layout { layout } = serde_json::from_slice(body).context("its answer is not a report")?;
    ensure!(layout == LAYOUT, "its reports have layout {layout}, known is layout {LAYOUT}");
    serde_json::from_slice(body).context("its report is incomplete")
}
