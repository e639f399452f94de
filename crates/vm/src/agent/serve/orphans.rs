//! [`Children`]: who waits for which process, since everything that loses its parent becomes a child of the agent.
//!
//! The thread of a command waits for its process; [`Children::reap_orphans`] for all others. A process that is being
//! started is not known yet, and one that cannot be executed is waited for by `Command` itself, so that nothing is
//! reaped while `starting` is locked. Lock order: `starting`, `known`.

use std::{
    collections::HashSet,
    io,
    process::{Child, ExitStatus},
    sync::{Condvar, Mutex, PoisonError},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::wait::{Id, WaitPidFlag, waitid},
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

use super::{super::command::Running, lock};

/// The children of the agent.
#[derive(Default)]
pub(super) struct Children {
    starting: Mutex<()>,
    known: Mutex<Known>,
    /// `known` has changed.
    changed: Condvar,
}

#[derive(Default)]
struct Known {
    /// Those that threads wait for.
    leaders: HashSet<Pid>,
    /// How many were started.
    started: u64,
    /// There were no children at all when they were last looked for.
    is_empty: bool,
}

impl Children {
    /// Starts a command, for which the caller has to [`wait`](Self::wait).
    pub(super) fn start(&self, start: impl FnOnce() -> io::Result<Running>) -> io::Result<Running> {
        let _starting = lock(&self.starting);
        let running = start()?;
        let mut known = lock(&self.known);
        known.leaders.insert(Pid::from_child(&running.child));
        known.started += 1;
        known.is_empty = false;
        self.changed.notify_all();
        Ok(running)
    }

    /// Waits for a command.
    pub(super) fn wait(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(child);
        let status = child.wait();
        lock(&self.known).leaders.remove(&pid);
        self.changed.notify_all();
        status
    }

    /// Waits for every process that no command waits for. Does not return.
    pub(super) fn reap_orphans(&self) {
        loop {
            let started = lock(&self.known).started;
            // Only looks.
            match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
                Ok(status) => {
                    if let Some(pid) = status.pid().and_then(|pid| Pid::from_raw(pid.as_raw())) {
                        self.reap(pid);
                    }
                }
                Err(Errno::ECHILD) => {
                    let mut known = lock(&self.known);
                    while known.started == started {
                        known.is_empty = true;
                        self.changed.notify_all();
                        known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// Reaps a process that has ended, or waits until the thread of its command has.
    fn reap(&self, pid: Pid) {
        let is_leader = |known: &mut Known| known.leaders.contains(&pid);
        let known = lock(&self.known);
        if known.leaders.contains(&pid) {
            drop(self.changed.wait_while(known, is_leader));
            return;
        }
        drop(known);
        let _starting = lock(&self.starting);
        if !is_leader(&mut lock(&self.known)) {
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }

    /// Asks all processes to end, and waits until they have, but not for longer than `max`.
    pub(super) fn end_gently(&self, max: Duration) {
        // The group of process 1 is written as -1, which stands for every process but the caller. One that is stopped
        // ends once it goes on.
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process_group(Pid::INIT, signal);
        }
        drop(self.changed.wait_timeout_while(lock(&self.known), max, |known| !known.is_empty));
    }
}
