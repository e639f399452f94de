//! Reading a daemon's figures from its metrics socket.
//!
//! Whoever listens at the path may be anything: what it sends is bounded in bytes and in time.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use transom_host::metrics::Report;

/// For connecting, and again for the whole answer. A daemon needs a millisecond; a stopped one keeps the others
/// waiting.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer. One with every operation, every error and hundreds of queues is below 64 KiB.
const ANSWER_LEN_MAX: u64 = 1 << 20;
/// The layout of reports that this program knows.
const LAYOUT: u32 = 1;

/// A result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there are no figures, for a person to read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Asks the daemon at `path`; blocks for two seconds, twice at most.
///
/// Errors: nobody listens, it may not be opened, it is slow, or it answers something else.
pub fn read(path: &Path) -> Result<Report> {
    let stream = open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error(format!("there is no socket {path:?}: a daemon makes it with --metrics-socket")),
        ErrorKind::ConnectionRefused => {
            Error(format!("nobody listens at {path:?}: the daemon has ended, or this is no socket"))
        }
        ErrorKind::PermissionDenied => {
            Error(format!("{path:?} may not be opened: only the user that runs the daemon, and root, can read it"))
        }
        _ => Error(format!("cannot connect to {path:?}: {error}")),
    })?;
    let answer = ask(stream).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error(format!("{path:?} did not answer within {} s", ANSWER_TIME_MAX.as_secs()))
        }
        _ => Error(format!("cannot read from {path:?}: {error}")),
    })?;
    parse(&answer).map_err(|reason| {
        Error(format!("{path:?} is not the metrics socket of a transomd that this program knows: {reason}"))
    })
}

/// Connects; fails if the listener's queue stays full, instead of waiting forever.
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

fn parse(answer: &[u8]) -> std::result::Result<Report, String> {
    /// The one field that every layout has.
    #[derive(serde::Deserialize)]
    struct Layout {
        layout: u32,
    }
    if answer.is_empty() {
        return Err("it closed the connection without an answer".into());
    }
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").ok_or("its answer is not HTTP")?;
    let (head, body) = (&answer[..end], &answer[end + 4..]);
    let status = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    if !(status.starts_with(b"HTTP/1.") && status.get(8..12) == Some(b" 200")) {
        return Err(format!("it answered {:?}", String::from_utf8_lossy(status)));
    }
    let Layout { layout } =
        serde_json::from_slice(body).map_err(|error| format!("its answer is not a report: {error}"))?;
    if layout != LAYOUT {
        return Err(format!("its reports have layout {layout}, known is layout {LAYOUT}"));
    }
    serde_json::from_slice(body).map_err(|error| format!("its report is incomplete: {error}"))
}
