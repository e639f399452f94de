//! The process that stays outside the sandbox.
//!
//! It is the process that the caller started and whose id it knows. It forwards signals to the daemon, waits for the
//! daemon to exit, removes the socket and the pid file, which the daemon cannot see, and exits with the daemon's
//! status. It holds no descriptor of the guest and reads nothing that a guest wrote.

use super::{SandboxError, fork, step};
use crate::listen::{Listening, Traces};
use caps::{CapSet, Capability};
use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, WaitOptions, WaitStatus, getpid, kill_process, pidfd_open, waitpid};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use tracing::{debug, error};

/// The keeper as its child sees it.
pub(super) struct Keeper {
    pidfd: OwnedFd,
}

impl Keeper {
    /// Returns whether the keeper has exited.
    pub(super) fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}

/// What the child inherits.
pub(super) struct Child {
    pub(super) keeper: Keeper,
    pub(super) listener: UnixListener,
    /// Nothing to remove, only the lock of the pid file, which is shared with the keeper.
    pub(super) traces: Traces,
}

/// Forks. This process becomes the keeper and never returns; the child returns.
pub(super) fn leave_behind(listening: Listening) -> Result<Child, SandboxError> {
    let Listening { listener, traces } = listening;
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).map_err(step("cannot refer to this process", ""))?;
    match fork::fork().map_err(step("cannot start a process", ""))? {
        None => Ok(Child { keeper: Keeper { pidfd }, listener, traces: traces.lock_only() }),
        Some(child) => {
            // Otherwise a second front end could connect to a process that never accepts.
            drop(listener);
            keep(child, &traces)
        }
    }
}

fn keep(child: Pid, traces: &Traces) -> ! {
    reduce_capabilities();
    let mut signals = super::termination::signals();
    signals.add(Signal::SIGCHLD);
    // The signals that end the daemon are blocked already; this adds SIGCHLD.
    let status = match signals.thread_block() {
        Ok(()) => attend(child, &signals).status(),
        Err(errno) => {
            error!("cannot wait for signals: {errno}");
            1
        }
    };
    traces.remove();
    std::process::exit(status);
}

/// How a process has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    code: i32,
    /// The signal that has killed it.
    pub(super) signal: Option<i32>,
    /// It was told to end.
    pub(super) is_wanted: bool,
}

impl Ended {
    /// Returns the exit status of a process that ends for this reason.
    pub(super) fn status(self) -> i32 {
        self.code
    }
}

/// Forwards signals to a child that shares descriptors, until it has ended.
pub(super) fn wait_for(child: Pid) -> Ended {
    let mut signals = super::termination::signals();
    signals.add(Signal::SIGCHLD);
    if let Err(errno) = signals.thread_block() {
        error!("cannot wait for signals: {errno}");
        return Ended { code: 1, signal: None, is_wanted: false };
    }
    let ended = attend(child, &signals);
    // The next child finds SIGCHLD as this one did.
    let _ = SigSet::from(Signal::SIGCHLD).thread_unblock();
    ended
}

/// Forwards signals until the child has ended.
fn attend(child: Pid, signals: &SigSet) -> Ended {
    let mut is_wanted = false;
    let failed = Ended { code: 1, signal: None, is_wanted };
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                return Ended { code: exit_status(status), signal: status.terminating_signal(), is_wanted };
            }
            Ok(None) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => {
                error!("lost the daemon's process: {errno}");
                return failed;
            }
        }
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {}
            Ok(signal) => {
                is_wanted |= signal != Signal::SIGHUP;
                debug!(%signal, "forwarding a signal to the daemon");
                let signal = match signal {
                    Signal::SIGINT => rustix::process::Signal::INT,
                    Signal::SIGHUP => rustix::process::Signal::HUP,
                    _ => rustix::process::Signal::TERM,
                };
                // The child may have exited meanwhile; the next iteration sees that.
                let _ = kill_process(child, signal);
            }
            Err(errno) => {
                error!("cannot wait for signals: {errno}");
                return failed;
            }
        }
    }
}

fn exit_status(status: WaitStatus) -> i32 {
    if let Some(code) = status.exit_status() {
        return code;
    }
    let signal = status.terminating_signal().unwrap_or_default();
    if signal == libc::SIGSYS {
        error!("the daemon made a system call that is not on its list; --seccomp log names it in the kernel's log");
    } else {
        error!("the daemon was killed by signal {signal}");
    }
    // The convention of shells.
    128 + signal
}

/// Drops all capabilities except those for removing the socket and forwarding signals, which most users do not need.
fn reduce_capabilities() {
    set_capabilities(&[CapSet::Effective, CapSet::Inheritable, CapSet::Permitted]);
}

/// Drops all capabilities.
pub(super) fn reduce_capabilities_to_none() {
    for set in [CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        if let Err(error) = caps::clear(None, set) {
            debug!(%error, "cannot drop capabilities");
        }
    }
}

/// As the keeper does, for a process that later starts a daemon, which has to get all of them back.
pub fn reduce_effective_capabilities() {
    set_capabilities(&[CapSet::Effective]);
}

fn set_capabilities(sets: &[CapSet]) {
    let needed = [Capability::CAP_DAC_OVERRIDE, Capability::CAP_KILL];
    let kept = caps::read(None, CapSet::Permitted).unwrap_or_default().into_iter().filter(|cap| needed.contains(cap));
    let kept = kept.collect();
    for &set in sets {
        if let Err(error) = caps::set(None, set, &kept) {
            debug!(%error, "cannot drop capabilities");
        }
    }
}
