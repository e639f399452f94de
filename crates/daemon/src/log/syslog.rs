//! The system log: one datagram for each message, to `/dev/log`.
//!
//! Format: RFC 3164 as local daemons read it, `<priority>time name[pid]: text`. A message that the log cannot take at
//! once is lost: a guest must not wait for the host's log.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::SystemTime;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Facility "user" of RFC 3164, as virtiofsd uses.
const FACILITY_USER: u8 = 1;

/// A connection to the system log.
#[derive(Clone)]
pub(super) struct Syslog {
    socket: Arc<UnixDatagram>,
    /// The process that the caller knows, not the number within a pid namespace.
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
        let now = timestamp(SystemTime::now());
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

/// One message; dropping it sends it.
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
        // Lost if the log is full or gone; nobody is left to tell.
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

/// The time as RFC 3164 has it, "Nov 21 02:16:17", in UTC: the sandbox has no time zone files.
fn timestamp(now: SystemTime) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, second) = (seconds / 86400, seconds % 86400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{} {:>2} {hour:02}:{minute:02}:{second:02}", MONTHS[month], days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "Jan  1 00:00:00"),
            (951_782_399, "Feb 28 23:59:59"),
            (951_782_400, "Feb 29 00:00:00"),
            (1_795_227_377, "Nov 21 02:16:17"),
            (4_107_542_400, "Mar  1 00:00:00"),
        ] {
            assert_eq!(timestamp(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), expected, "{seconds}");
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
