//! The program that replays changes of the host in the shares: started before the command, ended after it.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read},
    os::{
        fd::{AsFd, AsRawFd},
        unix::process::CommandExt as _,
    },
    process::{ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::while_doing;
use crate::protocol::{EVENTS_PATH, Replay, Task};

/// How long the program may take to end. A request of its that is being answered takes a quarter of a second at most.
const END_MAX: Duration = Duration::from_secs(1);

/// The running program.
pub(super) struct Replayer {
    /// It ends when this is closed.
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
    is_ready: bool,
}

/// Opens the program, before another root hides it.
pub(super) fn program() -> io::Result<File> {
    File::open(EVENTS_PATH).map_err(while_doing(format!("cannot open {EVENTS_PATH}")))
}

/// Starts the program for the shares that are writable, if there are any. With [`Replay::Always`], returns once it
/// serves them; otherwise the command need not wait for it.
///
/// # Errors
///
/// It ended at once, and says why.
pub(super) fn start(program: &File, task: &Task) -> io::Result<Option<Replayer>> {
    let mut shares = task.mounts.iter().filter(|mount| !mount.is_read_only).peekable();
    if shares.peek().is_none() {
        return Ok(None);
    }
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0("transom-agent").arg("--until-eof");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if task.events == Replay::Always {
        command.args(shares.map(|mount| &mount.path));
    }
    let mut child = command.spawn()?;
    let missing = || io::Error::other("a pipe is missing");
    let mut replayer = Replayer {
        stdin: child.stdin.take().ok_or_else(missing)?,
        stdout: BufReader::new(child.stdout.take().ok_or_else(missing)?),
        stderr: child.stderr.take().ok_or_else(missing)?,
        is_ready: false,
    };
    if task.events == Replay::Always {
        replayer.await_ready()?;
    }
    Ok(Some(replayer))
}

impl Replayer {
    fn await_ready(&mut self) -> io::Result<()> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        self.is_ready = line == "ready\n";
        if self.is_ready {
            return Ok(());
        }
        self.stderr.read_to_string(&mut line)?;
        Err(io::Error::other(line.trim_end().to_owned()))
    }

    /// Ends the program, so that nobody waits for its last request; returns why it had ended before, if it had.
    pub(super) fn end(self) -> Option<String> {
        let Self { stdin, stdout, mut stderr, mut is_ready } = self;
        drop(stdin);
        is_ready |= stdout.buffer().starts_with(b"ready");
        let mut stdout = stdout.into_inner();
        let deadline = Instant::now() + END_MAX;
        let mut said = [0; 16];
        // Its standard output ends when it does.
        while has_more(&stdout, deadline) {
            match stdout.read(&mut said) {
                Ok(0) | Err(_) => break,
                Ok(len) => is_ready |= said[..len].starts_with(b"ready"),
            }
        }
        if is_ready || !has_more(&stderr, deadline) {
            return None;
        }
        let mut why = [0; 512];
        let len = stderr.read(&mut why).unwrap_or(0);
        let why = String::from_utf8_lossy(&why[..len]).trim_end().to_owned();
        (!why.is_empty()).then_some(why)
    }
}

/// Waits until there is something to read, or the end. Returns false at the deadline.
fn has_more(from: impl AsFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&from, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.is_ok_and(|ready| ready > 0),
        }
    }
}
