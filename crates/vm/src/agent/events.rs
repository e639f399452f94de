//! Starts the program that replays changes of the host in the shares.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::fd::AsRawFd,
    process::{Command, Stdio},
};

use super::while_doing;
use crate::protocol::{EVENTS_PATH, Task};

/// Opens the program, before another root hides it.
pub(super) fn program() -> io::Result<File> {
    File::open(EVENTS_PATH).map_err(while_doing(format!("cannot open {EVENTS_PATH}")))
}

/// Starts the program for the shares that are writable and returns once it serves them. It ends with everything else.
///
/// # Errors
///
/// It ended at once, and says why.
pub(super) fn start(program: &File, task: &Task) -> io::Result<()> {
    let mut shares = task.mounts.iter().filter(|mount| !mount.is_read_only).peekable();
    if shares.peek().is_none() {
        return Ok(());
    }
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.args(shares.map(|mount| &mount.path)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut line = String::new();
    if let Some(stdout) = stdout {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line == "ready\n" {
        return Ok(());
    }
    if let Some(stderr) = stderr {
        BufReader::new(stderr).read_line(&mut line)?;
    }
    Err(io::Error::other(line.trim_end().to_owned()))
}
