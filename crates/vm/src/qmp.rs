//! Commands to QEMU (QMP): a line of JSON each, and a line for each answer. Both have the number of the command, so
//! that an answer that comes too late is not taken for that of another command.

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
    /// What has come of the next line.
    partial: Vec<u8>,
    /// The number of the last command.
    last: u64,
    /// The longest time without an answer.
    answer_max: Duration,
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
        let stream = BufReader::new(stream);
        let mut qmp = Self { stream, partial: Vec::new(), last: 0, answer_max: ANSWER_MAX, patience };
        qmp.line(Instant::now())?;
        qmp.ask("qmp_capabilities", &json!({}))?;
        Ok(qmp)
    }

    /// Sends a command and returns what QEMU returns.
    ///
    /// # Errors
    ///
    /// Returns an error of the kind [`REFUSED`] with QEMU's own message if it refuses.
    pub(crate) fn ask(&mut self, command: &str, arguments: &Value) -> io::Result<Value> {
        let request = self.request(command, arguments);
        self.stream.get_mut().write_all(&request)?;
        self.answer(command)
    }

    /// Passes a descriptor, which later commands call `name`.
    ///
    /// # Errors
    ///
    /// As [`ask`](Self::ask).
    pub(crate) fn pass(&mut self, name: &str, fd: BorrowedFd<'_>) -> io::Result<()> {
        const COMMAND: &str = "getfd";
        let request = self.request(COMMAND, &json!({ "fdname": name }));
        let fds = [fd];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        let sent = sendmsg(self.stream.get_ref(), &[IoSlice::new(&request)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.stream.get_mut().write_all(&request[sent..])?;
        self.answer(COMMAND).map(|_| ())
    }

    /// Waits for the answer to the last command.
    fn answer(&mut self, command: &str) -> io::Result<Value> {
        let begun = Instant::now();
        loop {
            let mut line = self.line(begun)?;
            // Events come between answers, and so does what QEMU says to a command whose time was up.
            if line["id"].as_u64() != Some(self.last) {
                continue;
            }
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

    /// Reads one message, for which the caller has waited since `begun`.
    fn line(&mut self, begun: Instant) -> io::Result<Value> {
        while begun.elapsed() < self.answer_max {
            match self.stream.read_until(b'\n', &mut self.partial) {
                Ok(_) if self.partial.ends_with(b"\n") => {
                    return Ok(serde_json::from_slice(&std::mem::take(&mut self.partial))?);
                }
                Ok(_) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "QEMU has closed its monitor")),
                // What has come of the line is kept, also for the next command.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.patience.check()?,
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("QEMU has not answered for {} s", self.answer_max.as_secs_f32())))
    }

    /// Returns the line of a command, with a new number.
    fn request(&mut self, command: &str, arguments: &Value) -> Vec<u8> {
        self.last += 1;
        format!("{}\n", json!({ "execute": command, "arguments": arguments, "id": self.last })).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Reads a command, and returns its number.
    fn number(qemu: &mut BufReader<UnixStream>) -> u64 {
        let mut line = String::new();
        qemu.read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap()["id"].as_u64().unwrap()
    }

    #[test]
    fn an_answer_that_comes_too_late_is_not_that_of_the_next_command() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut qemu = BufReader::new(theirs);
        qemu.get_mut().write_all(b"{\"QMP\": {}}\n").unwrap();
        let qemu = thread::spawn(move || {
            let first = number(&mut qemu);
            writeln!(qemu.get_mut(), "{}", json!({ "return": {}, "id": first })).unwrap();
            qemu
        });
        let mut qmp = Qmp::new(ours.into(), Patience::default()).unwrap();
        let mut qemu = qemu.join().unwrap();

        // The first part of an answer comes in time.
        qemu.get_mut().write_all(b"{\"return\": \"la").unwrap();
        qmp.answer_max = LOOK_EVERY * 2;
        let error = qmp.ask("slow", &json!({})).unwrap_err();
        assert!(error.to_string().contains("has not answered"), "{error}");

        qmp.answer_max = ANSWER_MAX;
        let qemu = thread::spawn(move || {
            let [slow, next] = [number(&mut qemu), number(&mut qemu)];
            writeln!(qemu.get_mut(), "te\", \"id\": {slow}}}").unwrap();
            writeln!(qemu.get_mut(), "{}", json!({ "event": "RESUME" })).unwrap();
            writeln!(qemu.get_mut(), "{}", json!({ "return": "next", "id": next })).unwrap();
            let refused = number(&mut qemu);
            writeln!(qemu.get_mut(), "{}", json!({ "error": { "desc": "why" }, "id": refused })).unwrap();
        });
        assert_eq!(qmp.ask("next", &json!({})).unwrap(), "next");
        let error = qmp.ask("refused", &json!({})).unwrap_err();
        assert_eq!(error.kind(), REFUSED);
        assert!(error.to_string().contains("refuses refused: why"), "{error}");
        qemu.join().unwrap();
    }
}
