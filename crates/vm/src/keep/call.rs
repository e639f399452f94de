//! [`call`]: a command in a machine that is kept, from the process that wants it.
//!
//! One thread reads frames, one reads the input, and one for each output writes it, so that no stream waits for
//! another. The loop over [`Event`]s decides.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGKILL, SIGTERM, SIGWINCH},
    iterator::Signals,
};

use super::{
    Machine,
    credit::Credit,
    frame::{DATA_MAX, Frame, Kind, MESSAGE_MAX, WINDOW},
    messages::{Exec, FromCommand, Request, ToCommand},
};
use crate::{
    Error, Result,
    protocol::Stream,
    streams::is_escape,
    terminal::{self, RawMode},
};

/// How long the command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(3);

/// Where a command's input comes from and its output goes.
pub struct CallerStreams {
    /// Standard input.
    pub stdin: Box<dyn Read + Send>,
    /// Standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Standard error.
    pub stderr: Box<dyn Write + Send>,
}

/// How a command is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// The command gets a terminal, and this process's terminal is in raw mode meanwhile.
    pub is_terminal: bool,
    /// Kills the command after this time.
    pub timeout: Option<Duration>,
}

/// How a command ended.
#[derive(Debug)]
pub struct Called {
    /// The exit status, or 128 plus the signal's number if a signal ended the command.
    pub exit_code: i32,
    /// Why the command could not be started.
    pub error: Option<String>,
}

enum Event {
    Frame(Frame),
    Lost(Option<io::Error>),
    Failed(Stream, io::Error),
    Signal(i32),
}

/// The connection, for the threads that send.
type Sending = Arc<Mutex<UnixStream>>;

/// Runs a command in `machine`, takes over the signals of this process, and returns how the command ended.
///
/// The first SIGINT, SIGTERM or SIGHUP is passed on to the command; a second one, or three seconds, kill it.
///
/// # Errors
///
/// Returns an error if a signal or the timeout ended the command, if the machine ended, or if output cannot be written.
pub fn call(machine: Machine, mut exec: Exec, streams: CallerStreams, options: CallOptions) -> Result<Called> {
    let Machine { name, connection } = machine;
    let failed = || Error::io(format!("cannot talk to the machine {name}"));
    exec.terminal = options.is_terminal.then(terminal::size);
    let request = Frame::message(0, &Request::Exec(Box::new(exec))).map_err(Error::io("the command is too long"))?;
    let to_keeper = connection.try_clone().map_err(failed())?;
    let raw_mode = options.is_terminal.then(RawMode::enter).transpose();
    let raw_mode = raw_mode.map_err(Error::io("cannot set the terminal to raw mode"))?;

    let (events, received) = mpsc::channel();
    watch_signals(events.clone())?;
    let sending = Arc::new(Mutex::new(to_keeper));
    send_frame(&sending, &request).map_err(failed())?;
    let credit = Arc::new(Credit::new());
    read_frames(connection, events.clone());
    read_input(streams.stdin, Arc::clone(&sending), Arc::clone(&credit), options.is_terminal, events.clone());
    let outputs = [(Stream::Stdout, streams.stdout), (Stream::Stderr, streams.stderr)]
        .map(|(stream, to)| OutputWriter::start(stream, to, Arc::clone(&sending), events.clone()));
    let deadline = options.timeout.map(|timeout| (Instant::now() + timeout, Error::TimedOut(timeout)));
    let mut call = Call { name, sending, credit, received, deadline, raw_mode, outputs };
    let called = call.follow();
    // Whoever writes to the other end of the input learns that nobody reads it.
    call.credit.close();
    let called = called?;
    call.finish().map(|()| called)
}

/// A command that is running.
struct Call {
    name: String,
    sending: Sending,
    credit: Arc<Credit>,
    received: Receiver<Event>,
    /// The time when the command is killed, and the reason.
    deadline: Option<(Instant, Error)>,
    raw_mode: Option<RawMode>,
    outputs: [OutputWriter; 2],
}

impl Call {
    fn follow(&mut self) -> Result<Called> {
        loop {
            match self.next()? {
                Event::Frame(frame) => {
                    if let Some(called) = self.frame(frame)? {
                        return Ok(called);
                    }
                }
                Event::Lost(error) => return Err(self.lost(error)),
                Event::Failed(stream, error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    self.send(&ToCommand::Unwanted(stream));
                }
                Event::Failed(_, error) => {
                    self.send(&ToCommand::Signal { number: SIGKILL });
                    return Err(Error::io("cannot write the command's output")(error));
                }
                Event::Signal(SIGWINCH) if self.raw_mode.is_some() => self.send(&ToCommand::Resize(terminal::size())),
                Event::Signal(SIGWINCH) => {}
                Event::Signal(number) => self.signal(number)?,
            }
        }
    }

    fn next(&mut self) -> Result<Event> {
        let received = match &self.deadline {
            None => self.received.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some((at, _)) => self.received.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match received {
            Ok(event) => Ok(event),
            Err(RecvTimeoutError::Timeout) => {
                self.send(&ToCommand::Signal { number: SIGKILL });
                Err(self.deadline.take().map_or_else(|| self.lost(None), |(_, error)| error))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.lost(None)),
        }
    }

    /// Handles a frame; returns the end of the command.
    fn frame(&mut self, frame: Frame) -> Result<Option<Called>> {
        match frame.kind {
            Kind::Stdout => self.outputs[0].write(frame)?,
            Kind::Stderr => self.outputs[1].write(frame)?,
            Kind::Stdin => return Err(invalid("it sent input")),
            Kind::Message => match frame.parse().map_err(|error| invalid(&error.to_string()))? {
                FromCommand::Taken { bytes } => self.credit.give(bytes),
                FromCommand::Ended { exit_code, error } => return Ok(Some(Called { exit_code, error })),
            },
        }
        Ok(None)
    }

    fn signal(&mut self, number: i32) -> Result<()> {
        if let Some((_, Error::Interrupted(_))) = self.deadline {
            self.send(&ToCommand::Signal { number: SIGKILL });
            return Err(Error::Interrupted(number));
        }
        self.send(&ToCommand::Signal { number });
        self.deadline = Some((Instant::now() + GRACE, Error::Interrupted(number)));
        Ok(())
    }

    /// Sends a message. If the connection has closed, its reader reports that.
    fn send(&self, message: &ToCommand) {
        let _ = Frame::message(0, message).and_then(|frame| send_frame(&self.sending, &frame));
    }

    fn lost(&self, error: Option<io::Error>) -> Error {
        let why = error.map(|error| format!(" ({error})")).unwrap_or_default();
        Error::Guest(format!("the machine {} has ended, and the command with it{why}", self.name))
    }

    /// Waits until all output is written.
    fn finish(self) -> Result<()> {
        self.outputs.into_iter().for_each(OutputWriter::finish);
        // The terminal would change what is written after this.
        drop(self.raw_mode);
        let failed = self.received.try_iter().find_map(|event| match event {
            Event::Failed(_, error) if error.kind() != io::ErrorKind::BrokenPipe => Some(error),
            _ => None,
        });
        failed.map_or(Ok(()), |error| Err(Error::io("cannot write the command's output")(error)))
    }
}

/// A thread that writes an output.
struct OutputWriter {
    frames: Sender<Frame>,
    /// Bytes of frames that are not written yet.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl OutputWriter {
    fn start(stream: Stream, mut to: Box<dyn Write + Send>, sending: Sending, events: Sender<Event>) -> Self {
        let (frames, received) = mpsc::channel::<Frame>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = Arc::clone(&waiting);
        let thread = thread::spawn(move || {
            let mut is_failed = false;
            for frame in received {
                if !is_failed && let Err(error) = to.write_all(&frame.payload).and_then(|()| to.flush()) {
                    is_failed = true;
                    let _ = events.send(Event::Failed(stream, error));
                }
                left.fetch_sub(frame.len(), Ordering::Relaxed);
                let taken = ToCommand::Taken { stream, bytes: frame.len() };
                let _ = Frame::message(0, &taken).and_then(|frame| send_frame(&sending, &frame));
            }
        });
        Self { frames, waiting, thread }
    }

    fn write(&self, frame: Frame) -> Result<()> {
        if self.waiting.fetch_add(frame.len(), Ordering::Relaxed) + frame.len() > WINDOW {
            return Err(invalid("it sent more output than it may"));
        }
        // The thread ends only after this.
        let _ = self.frames.send(frame);
        Ok(())
    }

    fn finish(self) {
        drop(self.frames);
        let _ = self.thread.join();
    }
}

fn invalid(why: &str) -> Error {
    Error::Guest(format!("the agent broke the protocol: {why}"))
}

fn send_frame(sending: &Sending, frame: &Frame) -> io::Result<()> {
    frame.write(&mut *sending.lock().unwrap_or_else(PoisonError::into_inner))
}

fn read_frames(mut connection: UnixStream, events: Sender<Event>) {
    thread::spawn(move || {
        loop {
            let event = match Frame::read(&mut connection, MESSAGE_MAX) {
                Ok(Some(frame)) => Event::Frame(frame),
                Ok(None) => Event::Lost(None),
                Err(error) => Event::Lost(Some(error)),
            };
            let is_end = matches!(event, Event::Lost(_));
            if events.send(event).is_err() || is_end {
                return;
            }
        }
    });
}

fn read_input(
    mut stdin: Box<dyn Read + Send>,
    sending: Sending,
    credit: Arc<Credit>,
    is_terminal: bool,
    events: Sender<Event>,
) {
    thread::spawn(move || {
        let mut chunk = vec![0; DATA_MAX];
        let mut escapes = 0;
        while let Some(room) = credit.wait() {
            let len = match stdin.read(&mut chunk[..room]) {
                Ok(len) => len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // A closed standard input counts as empty.
                Err(_) => 0,
            };
            if is_terminal && is_escape(&chunk[..len], &mut escapes) {
                let _ = events.send(Event::Signal(SIGTERM));
            }
            let frame = Frame::data(0, Kind::Stdin, &chunk[..len]);
            credit.spend(frame.len());
            if send_frame(&sending, &frame).is_err() || len == 0 {
                return;
            }
        }
    });
}

fn watch_signals(events: Sender<Event>) -> Result<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH]).map_err(Error::io("cannot take over the signals"))?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if events.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}
