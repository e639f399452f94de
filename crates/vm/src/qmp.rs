//! Commands to QEMU (QMP): a line of JSON each, and a line for each answer.

use std::{
    io::{self, BufRead as _, BufReader, IoSlice, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};

/// The longest time without an answer. Most commands are answered within milliseconds.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// How often a wait looks whether anybody still waits.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The longest migration to or from a pipe.
const MIGRATION_MAX: Duration = Duration::from_secs(60);
/// How often the state of a migration is asked for.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// The kind of the error if QEMU refuses a command.
pub(crate) const REFUSED: io::ErrorKind = io::ErrorKind::Unsupported;

/// How long a caller waits: until a signal arrives, or a time has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patience {
    pub(crate) is_interrupted: Arc<AtomicBool>,
    pub(crate) until: Option<Instant>,
}

/// A connection to QEMU's monitor.
#[derive(Debug)]
pub(crate) struct Qmp {
    stream: BufReader<UnixStream>,
    patience: Patience,
}

impl Patience {
    fn check(&self) -> io::Result<()> {
        if self.is_interrupted.load(Ordering::Relaxed) {
            return Err(io::Error::other("a signal has arrived"));
        }
        match self.until {
            Some(until) if until <= Instant::now() => Err(io::Error::other("the time for the run is up")),
            _ => Ok(()),
        }
    }
}

impl Qmp {
    /// Takes over a connection. Blocks until QEMU greets.
    pub(crate) fn new(connection: OwnedFd, patience: Patience) -> io::Result<Self> {
        let stream = UnixStream::from(connection);
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut qmp = Self { stream: BufReader::new(stream), patience };
        qmp.line()?;
        qmp.ask("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Sends a command and returns what QEMU returns.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`REFUSED`] with QEMU's own message if it refuses.
    pub(crate) fn ask(&mut self, command: &str, arguments: &Value) -> io::Result<Value> {
        self.stream.get_mut().write_all(&request(command, arguments))?;
        self.answer(command)
    }

    /// Passes a descriptor, which later commands call `name`.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub(crate) fn pass(&mut self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        const COMMAND: &str = "getfd";
        let request = request(COMMAND, &json!({ "fdname": name }));
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = sendmsg(self.stream.get_ref(), &[IoSlice::new(&request)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.stream.get_mut().write_all(&request[sent..])?;
        self.answer(COMMAND).map(|_| ())
    }

    fn answer(&mut self, command: &str) -> io::Result<Value> {
        loop {
            // Events come between answers.
            let mut line = self.line()?;
            if let Some(answer) = line.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = line.get("error") {
                let reason = error["desc"].as_str().unwrap_or("no reason");
                return Err(io::Error::new(REFUSED, format!("QEMU refuses {command}: {reason}")));
            }
        }
    }

    /// Waits for the end of a migration, in either direction.
    pub(crate) fn await_migration(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < MIGRATION_MAX {
            let answer = self.ask("query-migrate", &json!({}))?;
            match answer["status"].as_str() {
                Some("completed") => return Ok(()),
                Some(status @ ("failed" | "cancelled")) => {
                    let reason = answer["error-desc"].as_str().unwrap_or("no reason");
                    return Err(io::Error::other(format!("the transfer of the machine's state {status}: {reason}")));
                }
                _ => std::thread::sleep(ASK_EVERY),
            }
            self.patience.check()?;
        }
        Err(io::Error::other(format!("the transfer of the machine's state takes over {} s", MIGRATION_MAX.as_secs())))
    }

    /// Reads one message.
    fn line(&mut self) -> io::Result<Value> {
        let (begun, mut line) = (Instant::now(), Vec::new());
        while begun.elapsed() < ANSWER_MAX {
            match self.stream.read_until(b'\n', &mut line) {
                Ok(_) if line.ends_with(b"\n") => return Ok(serde_json::from_slice(&line)?),
                Ok(_) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU has closed its monitor")),
                // What has come of the line is kept.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.patience.check()?,
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("QEMU has not answered for {} s", ANSWER_MAX.as_secs())))
    }
}

/// Returns the line of a command.
fn request(command: &str, arguments: &Value) -> Vec<u8> {
    format!("{}\n", json!({ "execute": command, "arguments": arguments })).into_bytes()
}
