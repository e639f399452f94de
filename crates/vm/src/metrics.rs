//! Reads a daemon's metrics from its socket.
//!
//! Any process may listen at the path: its answer is bounded in bytes and in time.

use std::{
    error::Error as _,
    io::{self, ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt};
use transom_metrics::Report;

/// Limit for connecting, and again for the whole answer. A daemon needs a millisecond; a stopped daemon blocks the
/// caller for this long.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Bytes of an answer. With every operation, every error and hundreds of queues it is below 64 KiB.
const ANSWER_LEN_MAX: u64 = 1 << 20;
/// Headers of an answer; a daemon sends three.
const HEADER_COUNT_MAX: usize = 64;

/// A result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// Why the metrics cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Error(String);

/// Asks the daemon at `path` for its metrics. Blocks for up to four seconds.
///
/// # Errors
///
/// The socket cannot be connected to, the answer takes too long, or it is not a report.
pub fn read(path: &Path) -> Result<Report> {
    let stream = open(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Error(format!("there is no socket {path:?}: a daemon creates it with --metrics-socket")),
        ErrorKind::ConnectionRefused => {
            Error(format!("nobody listens at {path:?}: the daemon has ended, or this is not a socket"))
        }
        ErrorKind::PermissionDenied => {
            Error(format!("permission denied for {path:?}: only root and the user that runs the daemon can read it"))
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
        Error(format!("{path:?} is not the metrics socket of a transomd that this program supports: {reason}"))
    })
}

/// Connects, with a time limit in case the listener's backlog stays full.
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
    if answer.is_empty() {
        return Err("it closed the connection without an answer".into());
    }
    let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let head_len = match response.parse(answer) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) => return Err("its answer is incomplete".into()),
        Err(error) => return Err(format!("its answer is not HTTP: {error}")),
    };
    if response.code != Some(200) {
        return Err(format!("it answered {} {}", response.code.unwrap_or(0), response.reason.unwrap_or_default()));
    }
    Report::parse(&answer[head_len..]).map_err(|error| match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    })
}
