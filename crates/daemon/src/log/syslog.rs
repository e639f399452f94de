//! Sends messages to the system log: one datagram each, to `/dev/log`.
//!
//! Format: RFC 3164 as local daemons read it, `<priority>time name[pid]: text`. A message that the log cannot accept at
//! once is lost: a guest must not wait for the host's log.
//!
//! The crate `syslog` is not used: its connection blocks when the log is full, its logger needs a lock, and it would
//! only replace the `format!` of a line.

use jiff::Timestamp;
use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Facility "user" of RFC 3164, the same as virtiofsd.
const FACILITY_USER: u8 = 1;

/// A connection to the system log.
#[derive(Clone)]
pub(super) struct Syslog {
    socket: Arc<UnixDatagram>,
    /// The process id that the caller sees, not the one inside the sandbox's pid namespace.
    pid: u32,
}

impl Syslog {
    /// Connects to the machine's log.
    pub(super) fn connect() -> io::Result<Self> {
        Self::connect_to("/dev/log")
    }

    fn connect_to(path: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket: Arc::new(socket), pid: std::process::id() })
    }

    fn line(&self, severity: u8) -> Line {
        let priority = FACILITY_USER * 8 + severity;
        let now = timestamp(Timestamp::now());
        let text = format!("<{priority}>{now} transomd[{}]: ", self.pid).into_bytes();
        Line { socket: Arc::clone(&self.socket), text }
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        self.line(severity(&Level::INFO))
    }

    fn make_writer_for(&'a self, meta: &Metadata<'_>) -> Line {
        self.line(severity(meta.level()))
    }
}

/// One message; sent on drop.
pub(super) struct Line {
    socket: Arc<UnixDatagram>,
    text: Vec<u8>,
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Lost if the log is full or gone; there is nowhere else to report it.
        let _ = self.socket.send(self.text.trim_ascii_end());
    }
}

fn severity(level: &Level) -> u8 {
    match *level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// Returns the time as RFC 3164 writes it, "Nov 21 02:16:17", in UTC: the sandbox has no time zone files.
fn timestamp(now: Timestamp) -> impl std::fmt::Display {
    now.strftime("%b %e %H:%M:%S")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_form_of_rfc_3164() {
        for (seconds, expected) in [(0, "Jan  1 00:00:00"), (1_795_227_377, "Nov 21 02:16:17")] {
            assert_eq!(timestamp(Timestamp::from_second(seconds).unwrap()).to_string(), expected, "{seconds}");
        }
    }

    #[test]
    fn a_message_is_one_datagram_with_its_severity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = UnixDatagram::bind(&path).unwrap();
        let syslog = Syslog::connect_to(path.to_str().unwrap()).unwrap();

        let mut line = syslog.line(severity(&Level::WARN));
        writeln!(line, "a queue stopped").unwrap();
        drop(line);

        let mut bytes = [0; 256];
        let len = log.recv(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..len]).unwrap();
        assert!(text.starts_with("<12>"), "{text}");
        assert!(text.ends_with(&format!(" transomd[{}]: a queue stopped", std::process::id())), "{text}");
    }
}
