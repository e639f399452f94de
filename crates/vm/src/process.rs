//! Child processes that die with this one: the VMM and the daemons.
//!
//! [`Supervised`] kills its process and that process's group when it is dropped, and waits for their end. If this
//! process is killed, the kernel kills the child (`PR_SET_PDEATHSIG`). [`child_setup`] has the only unsafe call.

use std::{
    env,
    ffi::OsStr,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, ChildStderr, ChildStdout, Command, ExitStatus},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    pipe::{PipeFlags, pipe_with},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};

use crate::{Error, Result};

mod child_setup;

/// How long the end of a killed process's descendants is waited for. The kernel takes some milliseconds to free their
/// memory; one that takes seconds has left the group or waits for a disk.
const DESCENDANTS_MAX: Duration = Duration::from_secs(5);

/// A child process that never outlives its owner.
#[derive(Debug)]
pub struct Supervised {
    child: Child,
    pidfd: OwnedFd,
    /// The reading end of a pipe: the process and its descendants have the other end.
    descendants: OwnedFd,
    status: Option<ExitStatus>,
}

impl Supervised {
    /// Starts `command` in a process group of its own.
    ///
    /// The kernel kills the child when the *thread* that called this ends: call it from a thread that outlives the
    /// child. The descriptors in `inherited` stay open in the child with the same numbers, and are closed here.
    ///
    /// # Errors
    ///
    /// Returns an error if the program cannot be started.
    pub fn spawn(mut command: Command, mut inherited: Vec<OwnedFd>) -> Result<Self> {
        let (descendants, held) = pipe_with(PipeFlags::CLOEXEC).map_err(Error::io("cannot create a pipe"))?;
        inherited.push(held);
        command.process_group(0);
        child_setup::arrange(&mut command, inherited);
        let child = command.spawn().map_err(Error::io(format!("cannot start {:?}", command.get_program())))?;
        let pidfd = pidfd_open(pid(&child), PidfdFlags::empty())
            .map_err(Error::io(format!("cannot watch {:?}", command.get_program())))?;
        Ok(Self { child, pidfd, descendants, status: None })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns a descriptor that is readable once the process has ended.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Returns the exit status if the process has ended; never blocks.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().ok().flatten();
        }
        self.status
    }

    /// Waits for the end of the process, and returns its exit status unless it takes longer than `limit`.
    pub(crate) fn ended_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        while self.ended().is_none() {
            let left = deadline.checked_duration_since(Instant::now())?;
            wait_for(&self.pidfd, PollFlags::IN, left);
        }
        self.status
    }

    /// Returns the pipes of standard output and standard error, where `command` asked for pipes, the first time.
    pub(crate) fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.child.stdout.take(), self.child.stderr.take())
    }

    /// Waits for the process to end. Blocks.
    ///
    /// # Errors
    ///
    /// Returns an error if the kernel does.
    pub(crate) fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait()?;
        self.status = Some(status);
        Ok(status)
    }

    /// Kills the process and its group, if the process has not ended, and waits for them, so that nothing of them uses
    /// a file any more. Members of the group are waited for at most [`DESCENDANTS_MAX`].
    pub fn kill(&mut self) {
        if self.status.is_some() {
            return;
        }
        self.send_kill();
        self.status = self.child.wait().ok();
        // The kernel closes the pipe's other end after it has freed the memory.
        let deadline = Instant::now() + DESCENDANTS_MAX;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            if wait_for(&self.descendants, PollFlags::empty(), left) {
                break;
            }
        }
    }

    /// Kills the process and its group. Does not block.
    pub(crate) fn send_kill(&self) {
        if self.status.is_none() {
            // The process has not been waited for, so its id and its group's cannot have been reused.
            let _ = kill_process_group(pid(&self.child), Signal::KILL);
        }
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns whether `program` is a path that exists or a name found in `PATH`.
pub(crate) fn is_found(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).is_file();
    }
    env::var_os("PATH").is_some_and(|path| env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

/// Waits until the descriptor has one of these events or its other end is closed. Returns false if a signal comes
/// earlier, and after `limit`.
fn wait_for(fd: &OwnedFd, events: PollFlags, limit: Duration) -> bool {
    let mut fds = [PollFd::new(fd, events)];
    match poll(&mut fds, Timespec::try_from(limit).ok().as_ref()) {
        Ok(count) => count > 0,
        Err(error) => error != Errno::INTR,
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use super::*;

    #[test]
    fn descendants_have_ended_when_a_killed_process_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ended");
        let mut command = Command::new("sh");
        // In another group, so that the signal misses it: it stands for one that dies slowly.
        command.args(["-c", r#"setsid sh -c 'echo begun; sleep 0.3; : >"$0"' "$0" & wait"#]).arg(&file);
        command.stdout(std::process::Stdio::piped());
        let mut process = Supervised::spawn(command, Vec::new()).unwrap();
        let mut line = String::new();
        BufReader::new(process.take_output().0.unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "begun\n");
        process.kill();
        assert!(file.exists());
    }
}
