//! Answers `GET /metrics` and `GET /json` on a local socket, by HTTP/1.0.
//!
//! The socket is open to the user that the daemon runs as and to root. A request is bounded in bytes and in time, and
//! so is the number of clients. One thread accepts; each connection has a thread that ends within
//! [`CONNECTION_TIME_MAX`].
//!
//! `httparse` parses requests. The server around it is ours: `tiny_http` sets no timeout and bounds neither headers nor
//! connections, and hyper needs an asynchronous runtime for two paths.

use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    fs::{Mode, fchmod},
    net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with},
};
use transom_metrics::{Report, Snapshot};

use super::openmetrics;

/// Clients at once: a scraper and a few people. The connection of another one is closed.
const CONNECTIONS_MAX: usize = 8;

/// Bytes of a request. curl sends about 100, a scraper several hundred.
const REQUEST_LEN_MAX: usize = 8192;

/// Headers of a request. A scraper sends about 10.
const HEADER_COUNT_MAX: usize = 64;

/// The longest time that a connection stays open, whatever the client does.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    path: Option<PathBuf>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the current values.
type Source = dyn Fn() -> Snapshot + Send + Sync;

impl MetricsServer {
    /// Creates a socket at `path` that only its owner can open, and serves what `source` returns. Replaces the socket
    /// of a process that has ended.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if a process listens at `path` or `path` is not a socket; errors of bind(2).
    pub fn bind(path: &Path, source: impl Fn() -> Snapshot + Send + Sync + 'static) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Before bind(2), so that others cannot connect even for a moment. Linux takes the file's mode from the socket.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, CONNECTIONS_MAX as i32)?;
        let mut server = Self::serve(UnixListener::from(socket), source)?;
        server.path = Some(path.to_owned());
        Ok(server)
    }

    /// Serves what `source` returns on a listening socket.
    ///
    /// # Errors
    ///
    /// The event or the thread cannot be created.
    pub fn serve(listener: UnixListener, source: impl Fn() -> Snapshot + Send + Sync + 'static) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let source: Arc<Source> = Arc::new(source);
        listener.set_nonblocking(true)?;
        let thread = {
            let stop = stop.clone();
            std::thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, &stop, &source))?
        };
        Ok(Self { path: None, stop, thread: Some(thread) })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        // Does not block: the counter was zero.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        if let Some(path) = &self.path {
            // In a sandbox, the path may be out of reach.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Removes the socket at `path` if no process listens there.
fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Also returned if `path` is not a socket; bind(2) reports that.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            use std::os::unix::fs::FileTypeExt;
            if path.symlink_metadata()?.file_type().is_socket() { std::fs::remove_file(path) } else { Ok(()) }
        }
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another process listens there")),
    }
}

fn accept(listener: &UnixListener, stop: &OwnedFd, source: &Arc<Source>) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => {
                return tracing::error!(%error, "cannot wait for readers of the metrics; they are no longer served");
            }
            Ok(_) if !ready[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        match listener.accept() {
            Ok((stream, _)) => begin(stream, &connections, source.clone()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // If descriptors ran out, the client is still in the backlog: wait rather than loop.
                tracing::warn!(%error, "cannot accept a connection for metrics");
                let timeout = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = poll(&mut [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)], Some(&timeout));
            }
        }
    }
}

/// Starts a thread for `stream`, or closes it if there are too many.
fn begin(stream: UnixStream, connections: &Arc<AtomicUsize>, source: Arc<Source>) {
    /// Counts a connection until it is dropped.
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    // Only this thread adds.
    if connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
        return;
    }
    connections.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(connections.clone());
    let connection = std::thread::Builder::new().name("metrics-client".into()).spawn(move || {
        let _counted = counted;
        let mut client = Client { stream, deadline: Instant::now() + CONNECTION_TIME_MAX };
        if let Err(error) = client.serve(&*source) {
            tracing::debug!(%error, "connection for metrics failed");
        }
    });
    if let Err(error) = connection {
        tracing::warn!(%error, "cannot start a thread for a metrics connection");
    }
}

/// A connection with its deadline.
struct Client {
    stream: UnixStream,
    deadline: Instant,
}

impl Client {
    fn serve(&mut self, source: &Source) -> io::Result<()> {
        self.stream.set_nonblocking(false)?;
        let (status, content_type, body) = match self.request()? {
            Request::Get(path) => match path.as_str() {
                "/metrics" => ("200 OK", openmetrics::CONTENT_TYPE, openmetrics::render(source())),
                "/json" => ("200 OK", "application/json", serde_json::to_string(&Report::new(&source()))?),
                _ => ("404 Not Found", "text/plain", "not found; try /metrics or /json\n".into()),
            },
            Request::OtherMethod => ("405 Method Not Allowed", "text/plain", "only GET is supported\n".into()),
            Request::Bad => ("400 Bad Request", "text/plain", "not an HTTP/1 request\n".into()),
        };
        let length = body.len();
        self.send(
            format!(
                "HTTP/1.0 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
            )
            .as_bytes(),
        )
    }

    /// Reads one request, without its body.
    fn request(&mut self) -> io::Result<Request> {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            if let Some(request) = Request::parse(&head) {
                return Ok(request);
            }
            if head.len() >= REQUEST_LEN_MAX {
                return Ok(Request::Bad);
            }
            self.stream.set_read_timeout(Some(self.time_left()?))?;
            match self.stream.read(&mut chunk)? {
                0 => return Ok(Request::Bad),
                count => head.extend_from_slice(&chunk[..count]),
            }
        }
    }

    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            self.stream.set_write_timeout(Some(self.time_left()?))?;
            let count = self.stream.write(bytes)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    fn time_left(&self) -> io::Result<Duration> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }
}

enum Request {
    Get(String),
    OtherMethod,
    Bad,
}

impl Request {
    /// Parses a request, or returns `None` if it is not complete yet.
    fn parse(head: &[u8]) -> Option<Self> {
        let mut headers = [httparse::EMPTY_HEADER; HEADER_COUNT_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(head) {
            Ok(httparse::Status::Partial) => return None,
            Ok(httparse::Status::Complete(_)) => {}
            Err(_) => return Some(Self::Bad),
        }
        Some(match (request.method, request.path) {
            (Some("GET"), Some(target)) => Self::Get(target.split('?').next().unwrap_or_default().into()),
            _ => Self::OtherMethod,
        })
    }
}

#[cfg(test)]
#[path = "server_test.rs"]
mod server_test;
