//! The host's side of the channels: threads that move bytes and send events to the session.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc::Sender},
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use signal_hook::consts::SIGTERM;

use crate::{
    Input, Output,
    event::Event,
    protocol::{FromGuest, Stream},
};

/// Large enough that the copy dominates the cost of the system call.
const CHUNK_LEN: usize = 64 << 10;

/// The longest message of a guest, warnings included.
const MESSAGE_MAX: u64 = 1 << 20;

/// The collected bytes of a stream.
pub(crate) type Collected = Arc<Mutex<Vec<u8>>>;

/// Reads messages until the channel closes, which is also an event.
pub(crate) fn read_control(control: OwnedFd, events: Sender<Event>) {
    thread::spawn(move || {
        let mut control = BufReader::new(File::from(control));
        let mut line = Vec::new();
        while (&mut control).take(MESSAGE_MAX).read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let event = match serde_json::from_slice::<FromGuest>(&line) {
                Ok(message) => Event::Message(message),
                Err(error) => Event::Garbled(format!("{error} in {:?}", String::from_utf8_lossy(&line))),
            };
            if events.send(event).is_err() {
                return;
            }
            line.clear();
        }
        let _ = events.send(Event::ControlClosed);
    });
}

/// Forwards an output stream of the guest. Each step is an event with the number of bytes so far.
pub(crate) fn read_output(
    channel: OwnedFd,
    stream: Stream,
    output: Output,
    events: Sender<Event>,
) -> io::Result<Collected> {
    let collected = Collected::default();
    let mut sink = match (output, stream) {
        (Output::Capture, _) => Sink::Memory(Arc::clone(&collected)),
        (Output::Inherit, Stream::Stdout) => Sink::Ours(duplicate(rustix::stdio::stdout())?),
        (Output::Inherit, Stream::Stderr) => Sink::Ours(duplicate(rustix::stdio::stderr())?),
    };
    let mut channel = File::from(channel);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK_LEN];
        let mut bytes = 0;
        loop {
            let len = match channel.read(&mut chunk) {
                Ok(0) => return,
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            };
            if let Err(error) = sink.take(&chunk[..len]) {
                // Continues to read, so that the guest does not block.
                sink = Sink::Nowhere;
                let _ = events.send(Event::OutputFailed(stream, error));
            }
            bytes += len as u64;
            if events.send(Event::Output(stream, bytes)).is_err() {
                return;
            }
        }
    });
    Ok(collected)
}

/// What ends the run if it is typed three times in a row on a terminal: Ctrl-].
const ESCAPE: u8 = 0x1d;
/// How often.
const ESCAPES: usize = 3;

/// Forwards the input to the guest. Its end is an event with the number of bytes. If it `is_terminal`, three escape
/// characters in a row are an event as SIGTERM is: a guest that hangs leaves no other way out.
pub(crate) fn write_input(channel: OwnedFd, input: &Input, is_terminal: bool, events: Sender<Event>) -> io::Result<()> {
    let mut source: Box<dyn Read + Send> = match input {
        Input::Inherit => Box::new(duplicate(rustix::stdio::stdin())?),
        Input::Empty => Box::new(io::empty()),
        Input::Bytes(bytes) => Box::new(io::Cursor::new(bytes.clone())),
    };
    let mut channel = File::from(channel);
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK_LEN];
        let mut bytes = 0;
        let mut escapes = 0;
        loop {
            let read = source.read(&mut chunk);
            if is_terminal && read.as_ref().is_ok_and(|len| is_escape(&chunk[..*len], &mut escapes)) {
                let _ = events.send(Event::Signal(SIGTERM));
            }
            match read {
                Ok(0) => break,
                Ok(len) if channel.write_all(&chunk[..len]).is_ok() => bytes += len as u64,
                Ok(_) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A closed standard input counts as empty.
                Err(_) => break,
            }
        }
        let _ = events.send(Event::InputEnded(bytes));
        // Keeps the channel open until the VMM ends, because one may treat the end of a channel as the end of all.
        let mut ends = [PollFd::new(&channel, PollFlags::empty())];
        while matches!(poll(&mut ends, None), Ok(0) | Err(Errno::INTR)) {}
    });
    Ok(())
}

/// Returns whether an escape is complete with `chunk`. `escapes` is the number of escape characters that end the input
/// so far.
pub(crate) fn is_escape(chunk: &[u8], escapes: &mut usize) -> bool {
    let mut is_complete = false;
    for &byte in chunk {
        *escapes = if byte == ESCAPE { *escapes + 1 } else { 0 };
        is_complete |= *escapes == ESCAPES;
    }
    is_complete
}

/// Locks the bytes, ignoring a panic of a thread that held the lock.
pub(crate) fn bytes(collected: &Collected) -> MutexGuard<'_, Vec<u8>> {
    collected.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Sink {
    Memory(Collected),
    Ours(File),
    Nowhere,
}

impl Sink {
    fn take(&mut self, chunk: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(collected) => bytes(collected).extend_from_slice(chunk),
            Self::Ours(file) => file.write_all(chunk)?,
            Self::Nowhere => {}
        }
        Ok(())
    }
}

fn duplicate(fd: impl AsFd) -> io::Result<File> {
    Ok(File::from(fd.as_fd().try_clone_to_owned()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_escapes_in_a_row_are_recognised_wherever_they_are_split() {
        let complete = |chunks: &[&[u8]]| {
            let mut escapes = 0;
            chunks.iter().filter(|chunk| is_escape(chunk, &mut escapes)).count()
        };
        assert_eq!(complete(&[b"a\x1d\x1d\x1db"]), 1);
        assert_eq!(complete(&[b"\x1d", b"\x1d", b"\x1d"]), 1);
        assert_eq!(complete(&[b"\x1d\x1d", b"a\x1d"]), 0);
        assert_eq!(complete(&[b"\x1d\x1d\x1d\x1d", b"\x1d"]), 1);
    }
}
