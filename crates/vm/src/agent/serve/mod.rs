//! A machine that is kept: runs commands of several callers, as frames on the channels of input and output ask for.
//!
//! One thread reads frames and never waits for a command. Each command has a thread that starts it and waits for its
//! end, and one for each of its streams ([`streams`]). What a command leaves running goes on; [`orphans`] waits for it.

mod orphans;
mod streams;

use std::{
    collections::HashMap,
    ffi::OsString,
    fs::File,
    io::{self, BufReader},
    os::unix::process::ExitStatusExt as _,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use self::orphans::Children;
use super::{
    channels::{Requests, Streams},
    command::{self, Ended, Launch, Running, Stages, end_everything, set_size},
};
use crate::{
    keep::{
        credit::Credit,
        frame::{Frame, Kind, START_MAX},
        messages::{Exec, FromCommand, Program, ToCommand},
    },
    protocol::{ShareChange, Stream, Task, ToGuest},
};

/// Two frames of input.
const READ_LEN: usize = 64 << 10;
/// How long programs may take to end after SIGTERM when the machine ends.
const END_MAX: Duration = Duration::from_secs(3);

/// Serves until the host wants the machine to end. Then ends all processes. `change_share` begins to mount or unmount a
/// share, and does not wait for it: the loop has to see the next request.
pub(super) fn run(
    task: &Task,
    streams: Streams,
    mut requests: Requests,
    stages: Stages<impl FnOnce() -> io::Result<()>, impl FnOnce()>,
    mut change_share: impl FnMut(u64, ShareChange),
) -> io::Result<Ended> {
    let defaults = Defaults { shell: task.command.clone(), user: task.user, env: task.env.clone() };
    let server = Arc::new(Server {
        defaults,
        to_host: Mutex::new(streams.stdout),
        commands: Mutex::default(),
        children: Children::default(),
    });
    thread::spawn({
        let server = Arc::clone(&server);
        move || server.children.reap_orphans()
    });
    thread::spawn({
        let server = Arc::clone(&server);
        move || server.read(streams.stdin)
    });
    (stages.started)()?;

    // The host has gone if there is no message.
    while let Some(request) = requests.next()? {
        match request {
            ToGuest::Finish => break,
            ToGuest::Share { number, change } => change_share(number, change),
            _ => {}
        }
    }
    lock(&server.commands).is_ending = true;
    (stages.ending)();
    server.children.end_gently(END_MAX);
    end_everything()?;
    Ok(Ended::default())
}

/// What a command has unless its caller says otherwise.
struct Defaults {
    shell: Vec<OsString>,
    user: Option<(u32, u32)>,
    env: Vec<(OsString, OsString)>,
}

struct Server {
    defaults: Defaults,
    to_host: Mutex<File>,
    commands: Mutex<Commands>,
    children: Children,
}

#[derive(Default)]
struct Commands {
    by_number: HashMap<u32, Command>,
    /// Nothing is started any more.
    is_ending: bool,
}

/// A command from its request to its end.
struct Command {
    /// Frames of standard input; dropped at its end.
    input: Option<Sender<Frame>>,
    outputs: [Arc<Credit>; 2],
    /// Its process, while there is one.
    leader: Option<Pid>,
    /// A signal that came before the process.
    early: Option<Signal>,
    terminal: Option<File>,
}

impl Server {
    fn read(self: &Arc<Self>, from_host: File) {
        let mut from_host = BufReader::with_capacity(READ_LEN, from_host);
        while let Ok(Some(frame)) = Frame::read(&mut from_host, START_MAX) {
            match frame.kind {
                Kind::Message => match frame.parse() {
                    Ok(ToCommand::Start(exec)) => self.start(frame.command, *exec),
                    Ok(message) => lock(&self.commands).handle(frame.command, message),
                    Err(error) => self.send_end(frame.command, command::CANNOT_RUN, Some(error.to_string())),
                },
                Kind::Stdin => lock(&self.commands).input(frame),
                // These come from here.
                Kind::Stdout | Kind::Stderr => {}
            }
        }
    }

    fn start(self: &Arc<Self>, number: u32, exec: Exec) {
        let (input, received) = mpsc::channel();
        let outputs = [Arc::new(Credit::new()), Arc::new(Credit::new())];
        let credits = outputs.clone();
        let mut commands = lock(&self.commands);
        if commands.is_ending {
            return self.send_end(number, command::CANNOT_RUN, Some("the machine is stopping".into()));
        }
        let command = Command { input: Some(input), outputs, leader: None, early: None, terminal: None };
        commands.by_number.insert(number, command);
        drop(commands);
        let server = Arc::clone(self);
        thread::spawn(move || {
            let (exit_code, error) = match server.follow(number, &exec, received, &credits) {
                Ok(exit_code) => (exit_code, None),
                Err(error) if error.kind() == io::ErrorKind::NotFound => (command::NOT_FOUND, Some(error)),
                Err(error) => (command::CANNOT_RUN, Some(error)),
            };
            lock(&server.commands).by_number.remove(&number);
            server.send_end(number, exit_code, error.map(|error| error.to_string()));
        });
    }

    /// Runs a command to its end, and until its output is sent.
    fn follow(
        self: &Arc<Self>,
        number: u32,
        exec: &Exec,
        input: Receiver<Frame>,
        credits: &[Arc<Credit>; 2],
    ) -> io::Result<i32> {
        let running = self.children.start(|| self.launch(number, exec))?;
        let Running { mut child, stdin, stdout, stderr, terminal } = running;
        let leader = Pid::from_child(&child);
        let at_end = streams::at_end(terminal.is_some());
        let (end, end_writer) = io::pipe()?;
        let output = |kind, from, credit: &Arc<Credit>| {
            let output = streams::Output {
                from,
                number,
                kind,
                credit: Arc::clone(credit),
                // A terminal has its own end.
                end: terminal.is_none().then(|| end.try_clone()).transpose()?,
            };
            let server = Arc::clone(self);
            io::Result::Ok(thread::spawn(move || output.copy(|frame| server.send(&frame))))
        };
        let mut outputs = vec![output(Kind::Stdout, stdout, &credits[0])?];
        outputs.extend(stderr.map(|from| output(Kind::Stderr, from, &credits[1])).transpose()?);
        let server = Arc::clone(self);
        thread::spawn(move || {
            streams::input(input, stdin, at_end, |bytes| {
                drop(Frame::message(number, &FromCommand::Taken { bytes }).map(|frame| server.send(&frame)));
            });
        });

        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(leader), ended).is_err_and(|error| error == rustix::io::Errno::INTR) {}
        // The process id stays taken until here.
        if let Some(command) = lock(&self.commands).by_number.get_mut(&number) {
            (command.leader, command.terminal, command.input) = (None, None, None);
        }
        let status = self.children.wait(&mut child)?;
        drop(end_writer);
        for output in outputs {
            let _ = output.join();
        }
        Ok(status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(command::CANNOT_RUN))
    }

    /// Starts the process, and passes on a signal that has come before it.
    fn launch(&self, number: u32, exec: &Exec) -> io::Result<Running> {
        let defaults = &self.defaults;
        let (words, name) = match &exec.program {
            Program::Command(words) if words.is_empty() => (&defaults.shell, None),
            Program::Command(words) => (words, None),
            Program::Archiver(words) => (words, Some(crate::archive::PROGRAM)),
        };
        let running = command::start(&Launch {
            words,
            agent_as: name,
            env: defaults.env.iter().chain(&exec.env).collect(),
            directory: exec.directory.as_deref(),
            user: exec.user.or(defaults.user),
            terminal: exec.terminal,
        });
        let running = running.map_err(|error| match words.first() {
            Some(word) => io::Error::new(error.kind(), format!("{}: {error}", word.display())),
            None => error,
        })?;
        if let Some(command) = lock(&self.commands).by_number.get_mut(&number) {
            let leader = Pid::from_child(&running.child);
            command.leader = Some(leader);
            command.terminal = running.terminal.as_ref().map(File::try_clone).transpose()?;
            if let Some(signal) = command.early {
                let _ = kill_process_group(leader, signal);
            }
        }
        Ok(running)
    }

    fn send(&self, frame: &Frame) -> io::Result<()> {
        frame.write(&mut *lock(&self.to_host))
    }

    fn send_end(&self, number: u32, exit_code: i32, error: Option<String>) {
        let ended = Frame::message(number, &FromCommand::Ended { exit_code, error });
        // Without the host the machine ends.
        let _ = ended.and_then(|frame| self.send(&frame));
    }
}

impl Commands {
    /// Does what the caller of a command wants. A command that has ended needs nothing.
    fn handle(&mut self, number: u32, message: ToCommand) {
        let Some(command) = self.by_number.get_mut(&number) else { return };
        match message {
            // Handled by the server.
            ToCommand::Start(_) => {}
            ToCommand::Taken { stream, bytes } => command.outputs[index(stream)].give(bytes),
            ToCommand::Unwanted(stream) => command.outputs[index(stream)].close(),
            ToCommand::Signal { number } => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    command.signal(signal);
                }
            }
            ToCommand::Resize(size) => {
                if let Some(terminal) = &command.terminal {
                    set_size(terminal, size);
                }
            }
            ToCommand::Gone => {
                command.signal(Signal::HUP);
                command.input = None;
                command.outputs.iter().for_each(|credit| credit.close());
            }
        }
    }

    fn input(&mut self, frame: Frame) {
        let Some(command) = self.by_number.get_mut(&frame.command) else { return };
        if frame.payload.is_empty() {
            command.input = None;
        } else if let Some(input) = &command.input {
            // The thread that writes takes all.
            let _ = input.send(frame);
        }
    }
}

impl Command {
    fn signal(&mut self, signal: Signal) {
        match self.leader {
            Some(leader) => drop(kill_process_group(leader, signal)),
            None => self.early = Some(signal),
        }
    }
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Locks, ignoring a panic of a thread that held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
