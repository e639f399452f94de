//! Answers `GET /metrics` and `GET /json` on a local socket, by HTTP/1.0.
//!
//! The socket is for the user that the daemon runs as and for root. A client can do nothing but read: what it sends is
//! bounded in bytes and in time, and so is the number of clients. One thread accepts; each connection has a thread that
//! ends within [`CONNECTION_TIME_MAX`].

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

use super::{Report, Snapshot, openmetrics};

/// Clients at once; a scraper and a few people. Another one is turned away.
const CONNECTIONS_MAX: usize = 8;

/// Bytes of a request's head; curl sends a hundred, a scraper some hundreds.
const REQUEST_LEN_MAX: usize = 8192;

/// From accepting a client to letting it go, whatever it does.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(5);

/// Serves the figures while it lives.
#[derive(Debug)]
pub struct MetricsServer {
    path: Option<PathBuf>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// Where the figures come from.
type Source = dyn Fn() -> Snapshot + Send + Sync;

impl MetricsServer {
    /// Makes a socket at `path`, for its owner alone, and serves what `source` answers. A socket that a dead process has
    /// left there is replaced.
    ///
    /// Errors: `AddrInUse` where somebody listens at `path` or something else lies there; those of bind(2).
    pub fn bind(path: &Path, source: impl Fn() -> Snapshot + Send + Sync + 'static) -> io::Result<Self> {
        remove_stale(path)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // Before bind(2), so that there is no moment at which others may connect. Linux takes the mode from the socket.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &SocketAddrUnix::new(path)?)?;
        listen(&socket, CONNECTIONS_MAX as i32)?;
        let mut server = Self::serve(UnixListener::from(socket), source)?;
        server.path = Some(path.to_owned());
        Ok(server)
    }

    /// Serves what `source` answers on a socket that listens already.
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
        // The counter of a new eventfd has room for 1.
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

/// Removes a socket at `path` that nobody listens at.
fn remove_stale(path: &Path) -> io::Result<()> {
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        // Also the answer where `path` is no socket: bind(2) will tell.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            use std::os::unix::fs::FileTypeExt;
            if path.symlink_metadata()?.file_type().is_socket() { std::fs::remove_file(path) } else { Ok(()) }
        }
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "somebody listens there already")),
    }
}

fn accept(listener: &UnixListener, stop: &OwnedFd, source: &Arc<Source>) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return tracing::error!(%error, "the metrics are served no longer"),
            Ok(_) if !ready[1].revents().is_empty() => return,
            Ok(_) => {}
        }
        match listener.accept() {
            Ok((stream, _)) => begin(stream, &connections, source.clone()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Without descriptors, the client stays in the queue: this must not become a busy loop.
                tracing::warn!(%error, "cannot accept a reader of the metrics");
                let timeout = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
                let _ = poll(&mut [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)], Some(&timeout));
            }
        }
    }
}

/// Gives `stream` a thread, or turns it away.
fn begin(stream: UnixStream, connections: &Arc<AtomicUsize>, source: Arc<Source>) {
    /// A connection that counts until this is dropped.
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    // This thread alone adds.
    if connections.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
        return;
    }
    connections.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(connections.clone());
    let connection = std::thread::Builder::new().name("metrics-client".into()).spawn(move || {
        let _counted = counted;
        let mut client = Client { stream, deadline: Instant::now() + CONNECTION_TIME_MAX };
        if let Err(error) = client.serve(&*source) {
            tracing::debug!(%error, "a reader of the metrics went away");
        }
    });
    if let Err(error) = connection {
        tracing::warn!(%error, "cannot start a thread for a reader of the metrics");
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
                "/metrics" => ("200 OK", openmetrics::CONTENT_TYPE, openmetrics::render(&source())),
                "/json" => ("200 OK", "application/json", serde_json::to_string(&Report::new(&source()))?),
                _ => ("404 Not Found", "text/plain", "there are /metrics and /json\n".into()),
            },
            Request::OtherMethod => ("405 Method Not Allowed", "text/plain", "GET alone is known\n".into()),
            Request::Bad => ("400 Bad Request", "text/plain", "this is no request of HTTP\n".into()),
        };
        let length = body.len();
        self.send(format!(
            "HTTP/1.0 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ).as_bytes())
    }

    /// Reads until the empty line that ends a request's head.
    fn request(&mut self) -> io::Result<Request> {
        let mut head = Vec::new();
        let mut chunk = [0; 1024];
        loop {
            if head.windows(2).any(|end| end == b"\n\n") || head.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(Request::parse(&head));
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
    fn parse(head: &[u8]) -> Self {
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let Ok(line) = std::str::from_utf8(line) else { return Self::Bad };
        match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            ["GET", target, version] if version.starts_with("HTTP/1.") => {
                Self::Get(target.split('?').next().unwrap_or_default().into())
            }
            [_, _, version] if version.starts_with("HTTP/") => Self::OtherMethod,
            _ => Self::Bad,
        }
    }
}

#[cfg(test)]
#[path = "server_test.rs"]
mod server_test;
