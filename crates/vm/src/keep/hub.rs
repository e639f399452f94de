//! The keeper's side of a machine: takes requests of other processes, and passes frames between them and the guest.
//!
//! Each caller has a thread that reads from it and one that writes to it, and the guest has one that reads. Callers and
//! the agent agree on how much is on the way (credit), so that the [`Outbox`] of a caller that reads slowly holds a
//! bounded number of bytes, and nobody waits for it. A guest that sends more loses that caller.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    net::Shutdown,
    os::{
        fd::OwnedFd,
        unix::net::{UnixListener, UnixStream},
    },
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use super::{
    Keeper,
    claim::Claim,
    frame::{Frame, MESSAGE_MAX, START_MAX, WINDOW},
    messages::{Exec, FromCommand, Program, Request, RunningCommand, Status, ToCommand},
    shares::{Asked, Change, ParseShare, ShareAnswer},
};
use crate::{event::Event, session::SharedDirectories};

/// Callers at once. Each has two threads and an outbox.
const CALLERS_MAX: usize = 64;
/// What a guest that keeps to the credit can have sent to one caller: two streams, and answers to a window of input in
/// the smallest frames.
const OUTBOX_MAX: usize = 8 * WINDOW;
/// How long a caller may take to say what it wants.
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// Bytes of a command that a status shows.
const WORDS_LEN_MAX: usize = 4 << 10;
/// The exit status of a command that the keeper refuses.
const REFUSED: i32 = 125;

/// What the callers of one machine share.
#[derive(Debug)]
pub(crate) struct Hub {
    claim: Arc<Claim>,
    description: Status,
    /// The session's list.
    shares: SharedDirectories,
    parse: Arc<dyn ParseShare>,
    to_guest: Mutex<File>,
    callers: Mutex<Callers>,
    events: Mutex<Sender<Event>>,
    /// Ends what the session waits for.
    is_interrupted: Arc<AtomicBool>,
}

/// The parts of a session that the threads of callers use.
#[derive(Debug)]
pub(crate) struct ForHub {
    pub(crate) to_guest: OwnedFd,
    pub(crate) from_guest: OwnedFd,
    pub(crate) events: Sender<Event>,
    pub(crate) shares: SharedDirectories,
    pub(crate) is_interrupted: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Callers {
    /// Connections that are open.
    connections: usize,
    /// The number of the last command.
    last: u32,
    commands: HashMap<u32, Caller>,
}

#[derive(Debug)]
struct Caller {
    outbox: Arc<Outbox>,
    command: RunningCommand,
}

/// Frames for a caller that are not written yet.
#[derive(Debug)]
struct Outbox {
    connection: UnixStream,
    /// `None` once nothing more is written.
    bytes: Mutex<Option<Vec<u8>>>,
    changed: Condvar,
}

/// Starts to serve requests for a machine that is ready.
pub(crate) fn serve(keeper: &Keeper, session: ForHub) -> io::Result<()> {
    let ForHub { to_guest, from_guest, events, shares, is_interrupted } = session;
    let Keeper { claim, description, parse } = keeper;
    let listener = claim.ready()?;
    let hub = Arc::new(Hub {
        claim: Arc::clone(claim),
        description: Status { since: now(), ..description.clone() },
        shares,
        parse: Arc::clone(parse),
        to_guest: Mutex::new(File::from(to_guest)),
        callers: Mutex::default(),
        events: Mutex::new(events),
        is_interrupted,
    });
    thread::spawn({
        let hub = Arc::clone(&hub);
        move || hub.read_guest(File::from(from_guest))
    });
    thread::spawn(move || hub.accept(&listener));
    Ok(())
}

impl Hub {
    fn read_guest(&self, mut from_guest: File) {
        loop {
            match Frame::read(&mut from_guest, MESSAGE_MAX) {
                Ok(Some(frame)) => {
                    let outbox = lock(&self.callers).commands.get(&frame.command).map(|c| Arc::clone(&c.outbox));
                    // The caller may have gone.
                    if let Some(outbox) = outbox {
                        outbox.add(&frame);
                    }
                }
                // The control channel tells how the machine has ended.
                Ok(None) => return,
                Err(error) => return self.tell(Event::Garbled(error.to_string())),
            }
        }
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        for connection in listener.incoming().map_while(io::Result::ok) {
            let hub = Arc::clone(self);
            lock(&self.callers).connections += 1;
            thread::spawn(move || {
                // A caller that cannot be talked to is gone.
                let _ = hub.attend(connection);
                lock(&hub.callers).connections -= 1;
            });
        }
    }

    fn attend(self: &Arc<Self>, mut connection: UnixStream) -> io::Result<()> {
        connection.set_read_timeout(Some(REQUEST_MAX))?;
        let Some(frame) = Frame::read(&mut connection, START_MAX)? else { return Ok(()) };
        connection.set_read_timeout(None)?;
        match frame.parse()? {
            Request::Status => Frame::message(0, &self.status())?.write(&mut connection),
            Request::Stop { is_forced } => {
                self.claim.await_end(connection);
                // The session may wait for QEMU, but not when nothing else counts any more.
                if is_forced {
                    self.is_interrupted.store(true, Ordering::Relaxed);
                }
                self.tell(Event::Stop { is_forced });
                Ok(())
            }
            Request::Share { request, timeout } => {
                let writable = lock(&self.shares).writable.clone();
                let answer: ShareAnswer = Change::of(request, &self.parse, writable, timeout).and_then(|change| {
                    let (answer, answered) = mpsc::channel();
                    self.tell(Event::Share(Asked { change, timeout, answer }));
                    answered.recv().unwrap_or_else(|_| Err("it ends".into()))
                });
                Frame::message(0, &answer)?.write(&mut connection)
            }
            Request::Exec(_) if lock(&self.callers).connections > CALLERS_MAX => {
                let error = Some(format!("{CALLERS_MAX} commands are running already"));
                Frame::message(0, &FromCommand::Ended { exit_code: REFUSED, error })?.write(&mut connection)
            }
            Request::Exec(exec) => self.relay(connection, *exec),
        }
    }

    /// Starts a command and passes frames on until its caller closes the connection.
    fn relay(&self, mut connection: UnixStream, exec: Exec) -> io::Result<()> {
        let outbox = Arc::new(Outbox {
            connection: connection.try_clone()?,
            bytes: Mutex::new(Some(Vec::new())),
            changed: Condvar::new(),
        });
        let command = RunningCommand { words: words(&exec.program), since: now() };
        let number = lock(&self.callers).add(Caller { outbox: Arc::clone(&outbox), command });
        let writer = thread::spawn(move || outbox.write());
        let relayed = self.send(&ToCommand::Start(Box::new(exec)), number).and_then(|()| {
            while let Some(frame) = Frame::read(&mut connection, MESSAGE_MAX)? {
                Frame { command: number, ..frame }.write(&mut *lock(&self.to_guest))?;
            }
            Ok(())
        });
        if let Some(caller) = lock(&self.callers).commands.remove(&number) {
            caller.outbox.close();
        }
        let _ = writer.join();
        // The agent knows nothing of a command that has ended.
        self.send(&ToCommand::Gone, number)?;
        relayed
    }

    fn send(&self, message: &ToCommand, number: u32) -> io::Result<()> {
        Frame::message(number, message)?.write(&mut *lock(&self.to_guest))
    }

    fn status(&self) -> Status {
        let mut commands: Vec<_> = lock(&self.callers).commands.values().map(|c| c.command.clone()).collect();
        commands.sort_by_key(|command| command.since);
        Status { commands, shares: lock(&self.shares).shares.clone(), ..self.description.clone() }
    }

    fn tell(&self, event: Event) {
        // Without a session the machine has ended.
        let _ = lock(&self.events).send(event);
    }
}

impl Callers {
    /// Adds a caller and returns the number of its command, which no other has had.
    fn add(&mut self, caller: Caller) -> u32 {
        self.last = self.last.wrapping_add(1);
        while self.commands.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        self.commands.insert(self.last, caller);
        self.last
    }
}

impl Outbox {
    fn add(&self, frame: &Frame) {
        let mut bytes = lock(&self.bytes);
        if let Some(waiting) = &mut *bytes {
            if waiting.len() + frame.len() > OUTBOX_MAX {
                *bytes = None;
                let _ = self.connection.shutdown(Shutdown::Both);
            } else {
                waiting.extend(frame.to_bytes());
            }
        }
        self.changed.notify_one();
    }

    fn close(&self) {
        *lock(&self.bytes) = None;
        let _ = self.connection.shutdown(Shutdown::Both);
        self.changed.notify_one();
    }

    fn write(&self) {
        while let Some(bytes) = self.next() {
            if (&self.connection).write_all(&bytes).is_err() {
                return;
            }
        }
    }

    /// Waits for bytes to write.
    fn next(&self) -> Option<Vec<u8>> {
        let mut bytes = lock(&self.bytes);
        while bytes.as_ref().is_some_and(Vec::is_empty) {
            bytes = self.changed.wait(bytes).unwrap_or_else(PoisonError::into_inner);
        }
        bytes.as_mut().map(std::mem::take)
    }
}

/// Returns the words that stand for a program, as many as a status has room for.
fn words(program: &Program) -> Vec<OsString> {
    let mut len = 0;
    let fits = |word: &&OsString| {
        len += word.len();
        len <= WORDS_LEN_MAX
    };
    match program {
        Program::Command(words) if words.is_empty() => vec!["(shell)".into()],
        Program::Command(words) => words.iter().take_while(fits).cloned().collect(),
        Program::Archiver(_) => vec!["(copy)".into()],
    }
}

/// Returns the seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Locks, ignoring a panic of a thread that held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keep::frame::Kind;

    #[test]
    fn a_caller_that_reads_nothing_costs_a_bounded_amount_of_memory() {
        let (connection, caller) = UnixStream::pair().unwrap();
        let outbox = Outbox { connection, bytes: Mutex::new(Some(Vec::new())), changed: Condvar::new() };
        let frame = Frame::data(1, Kind::Stdout, &[0; 1000]);
        for _ in 0..OUTBOX_MAX / 1000 {
            outbox.add(&frame);
            assert!(lock(&outbox.bytes).as_ref().is_none_or(|bytes| bytes.len() <= OUTBOX_MAX));
        }
        assert_eq!(outbox.next(), None);
        assert_eq!(io::Read::read(&mut &caller, &mut [0; 1]).unwrap(), 0);
    }

    #[test]
    fn numbers_of_commands_that_run_are_not_used_again() {
        let (connection, _caller) = UnixStream::pair().unwrap();
        let outbox = Arc::new(Outbox { connection, bytes: Mutex::default(), changed: Condvar::new() });
        let caller = || Caller { outbox: Arc::clone(&outbox), command: RunningCommand { words: vec![], since: 0 } };
        let mut callers = Callers { last: u32::MAX - 1, ..Callers::default() };
        let numbers: Vec<u32> = (0..3).map(|_| callers.add(caller())).collect();
        assert_eq!(numbers, [u32::MAX, 0, 1]);
        callers.last = u32::MAX - 1;
        assert_eq!(callers.add(caller()), 2);
    }
}
