//! The command: started with pipes or a terminal, followed to its end, its descendants with it.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, PipeWriter, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::chown,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use rustix::{
    process::{Pid, Signal, WaitOptions, kill_process_group, wait},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use super::{
    channels::{Requests, Streams},
    pump, session_leader, while_doing,
};
use crate::protocol::{Size, Stream, Task, ToGuest};

/// As shells have it: the command is there and cannot be run; it is not there.
pub(super) const CANNOT_RUN: i32 = 126;
pub(super) const NOT_FOUND: i32 = 127;
/// What ends the input of a terminal.
pub(super) const END_OF_TRANSMISSION: &[u8] = b"\x04";

/// How the command ended.
#[derive(Debug, Default)]
pub(super) struct Ended {
    pub(super) exit_code: i32,
    pub(super) stdout_bytes: u64,
    pub(super) stderr_bytes: u64,
    pub(super) warnings: Vec<String>,
}

/// What others do at stages of the command.
pub(super) struct Stages<S, E> {
    /// It has started.
    pub(super) started: S,
    /// It has ended, or could not be started, and all that it started is about to be killed.
    pub(super) ending: E,
}

/// A command that runs, and what is connected to it.
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) stdin: File,
    pub(super) stdout: File,
    /// With a terminal everything comes by standard output.
    pub(super) stderr: Option<File>,
    pub(super) terminal: Option<File>,
}

/// A command that is to be started.
pub(super) struct Launch<'a> {
    /// The command and its arguments; only the arguments if it is the agent's own program.
    pub(super) words: &'a [OsString],
    /// The name by which the agent's own program is started.
    pub(super) agent_as: Option<&'static str>,
    pub(super) env: Vec<&'a (OsString, OsString)>,
    /// The working directory, which is made if it is missing; by default that of the agent.
    pub(super) directory: Option<&'a Path>,
    pub(super) user: Option<(u32, u32)>,
    pub(super) terminal: Option<Size>,
}

/// Runs the task's command to its end, with everything that it started.
pub(super) fn run(
    task: &Task,
    streams: Streams,
    requests: Requests,
    stages: Stages<impl FnOnce() -> io::Result<()>, impl FnOnce()>,
) -> io::Result<Ended> {
    let launch = Launch {
        words: &task.command,
        agent_as: None,
        env: task.env.iter().collect(),
        directory: None,
        user: task.user,
        terminal: task.terminal,
    };
    let running = match start(&launch) {
        Ok(running) => running,
        Err(error) => {
            let exit_code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { CANNOT_RUN };
            let name = task.command.first().map(OsString::as_os_str).unwrap_or_default();
            let warnings = vec![format!("{}: {error}", name.to_string_lossy())];
            (stages.ending)();
            return Ok(Ended { exit_code, warnings, ..Ended::default() });
        }
    };
    (stages.started)()?;

    let (end, end_writer) = io::pipe()?;
    let unwanted: [Arc<AtomicBool>; 2] = Default::default();
    let at_end = if running.terminal.is_some() { END_OF_TRANSMISSION } else { b"" };
    pump::input(streams.stdin, running.stdin, end, at_end);
    let stdout = pump::output(running.stdout, streams.stdout, Arc::clone(&unwanted[0]));
    let stderr = running.stderr.map(|from| pump::output(from, streams.stderr, Arc::clone(&unwanted[1])));
    let leader = Pid::from_child(&running.child);
    let follower = Follower { leader, terminal: running.terminal, end: end_writer, unwanted };
    thread::spawn(move || follower.follow(requests));

    let status = reap_until(leader)?;
    (stages.ending)();
    end_everything()?;
    Ok(Ended {
        exit_code: status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(CANNOT_RUN),
        stdout_bytes: joined(stdout)?,
        stderr_bytes: stderr.map_or(Ok(0), joined)?,
        warnings: Vec::new(),
    })
}

/// Starts a command.
pub(super) fn start(launch: &Launch<'_>) -> io::Result<Running> {
    let mut command = match (launch.agent_as, launch.words.split_first()) {
        (Some(name), _) => {
            let mut command = Command::new("/proc/self/exe");
            command.arg0(name).args(launch.words);
            command
        }
        (None, Some((program, arguments))) => {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        }
        (None, None) => return Err(io::Error::other("no command")),
    };
    command.env_clear().envs(launch.env.iter().map(|(name, value)| (name, value)));
    if let Some(directory) = launch.directory {
        let entered = fs::create_dir_all(directory)
            .and_then(|()| fs::metadata(directory)?.is_dir().then_some(()).ok_or(io::ErrorKind::NotADirectory.into()));
        // Not the error of a command that is not found.
        entered.map_err(|error| io::Error::other(format!("cannot enter {}: {error}", directory.display())))?;
        command.current_dir(directory);
    }
    if let Some((uid, gid)) = launch.user {
        command.uid(uid).gid(gid);
    }
    session_leader::arrange(&mut command, launch.terminal.is_some());
    match launch.terminal {
        Some(size) => start_on_terminal(command, size, launch.user),
        None => start_on_pipes(command),
    }
}

fn start_on_pipes(mut command: Command) -> io::Result<Running> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let missing = || io::Error::other("a pipe is missing");
    let stdin = pump::file(child.stdin.take().ok_or_else(missing)?);
    let stdout = pump::file(child.stdout.take().ok_or_else(missing)?);
    let stderr = pump::file(child.stderr.take().ok_or_else(missing)?);
    Ok(Running { child, stdin, stdout, stderr: Some(stderr), terminal: None })
}

fn start_on_terminal(mut command: Command, size: Size, user: Option<(u32, u32)>) -> io::Result<Running> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).map_err(while_doing("cannot open a terminal"))?;
    grantpt(&ours)?;
    unlockpt(&ours)?;
    let name = ptsname(&ours, Vec::new())?;
    set_size(&ours, size);
    let path = name.to_str().map_err(io::Error::other)?;
    if let Some((uid, gid)) = user {
        chown(path, Some(uid), Some(gid)).map_err(while_doing(format!("cannot give {path} to the user")))?;
    }
    let theirs =
        OpenOptions::new().read(true).write(true).open(path).map_err(while_doing(format!("cannot open {path}")))?;
    command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    let child = command.spawn()?;
    // `command` holds the terminal open on the command's side: its end would never come.
    drop(command);
    let ours = pump::file(ours);
    Ok(Running { child, stdin: ours.try_clone()?, stdout: ours.try_clone()?, stderr: None, terminal: Some(ours) })
}

/// Sets the size of a terminal.
pub(super) fn set_size(terminal: impl AsFd, size: Size) {
    let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // A terminal of the wrong size is still a terminal.
    let _ = tcsetwinsize(terminal, size);
}

/// Does what the host asks for while the command runs.
struct Follower {
    leader: Pid,
    terminal: Option<File>,
    end: PipeWriter,
    unwanted: [Arc<AtomicBool>; 2],
}

impl Follower {
    fn follow(mut self, mut requests: Requests) {
        while let Ok(Some(request)) = requests.next() {
            match request {
                // There is a task already, which ends by itself, and its shares stay.
                ToGuest::Begin(_) | ToGuest::Go | ToGuest::Share { .. } | ToGuest::Finish => {}
                ToGuest::StdinEnd { bytes } => drop(self.end.write_all(&bytes.to_ne_bytes())),
                ToGuest::Resize(size) => {
                    if let Some(terminal) = &self.terminal {
                        set_size(terminal, size);
                    }
                }
                ToGuest::Signal { number } => {
                    if let Some(signal) = Signal::from_named_raw(number) {
                        let _ = kill_process_group(self.leader, signal);
                    }
                }
                ToGuest::Unwanted(stream) => {
                    let index = match stream {
                        Stream::Stdout => 0,
                        Stream::Stderr => 1,
                    };
                    self.unwanted[index].store(true, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Waits for every child that ends, orphans too, until `leader` has.
fn reap_until(leader: Pid) -> io::Result<ExitStatus> {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == leader => return Ok(ExitStatus::from_raw(status.as_raw())),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Kills all processes but this one, and waits for them: what they hold open must be closed.
pub(super) fn end_everything() -> io::Result<()> {
    // The group of process 1 is written as -1, which stands for every process but the caller.
    match kill_process_group(Pid::INIT, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    loop {
        match wait(WaitOptions::empty()) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn joined(thread: JoinHandle<io::Result<u64>>) -> io::Result<u64> {
    thread.join().map_err(|_| io::Error::other("a thread panicked"))?
}
