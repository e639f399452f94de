//! The process that stays outside the sandbox.
//!
//! It is the one that the caller started and knows by id. It passes signals on to the daemon, waits for its end,
//! removes the socket and the pid file, which the daemon cannot see, and ends with the daemon's status. It holds no
//! descriptor of the guest and reads nothing that a guest wrote.

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
    /// Whether the keeper has ended already.
    pub(super) fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }
}

/// What the child takes along.
pub(super) struct Child {
    pub(super) keeper: Keeper,
    pub(super) listener: UnixListener,
    /// Nothing to remove; the lock of the pid file, shared with the keeper.
    pub(super) traces: Traces,
}

/// Forks; this process becomes the keeper and never returns, the child does.
pub(super) fn leave_behind(listening: Listening) -> Result<Child, SandboxError> {
    let Listening { listener, traces } = listening;
    let pidfd = pidfd_open(getpid(), PidfdFlags::empty()).map_err(step("cannot refer to this process", ""))?;
    match fork::fork().map_err(step("cannot start a process", ""))? {
        None => Ok(Child { keeper: Keeper { pidfd }, listener, traces: traces.lock_only() }),
        Some(child) => {
            // A second front end that connects must not wait for a process that never accepts.
            drop(listener);
            keep(child, &traces)
        }
    }
}

fn keep(child: Pid, traces: &Traces) -> ! {
    reduce_capabilities();
    let mut signals = super::termination::signals();
    signals.add(Signal::SIGCHLD);
    // Those that end the daemon are blocked already; this adds the news of its end.
    let status = match signals.thread_block() {
        Ok(()) => attend(child, &signals),
        Err(errno) => {
            error!("cannot wait for signals: {errno}");
            1
        }
    };
    traces.remove();
    std::process::exit(status);
}

/// Passes signals on until the child has ended. Returns the exit status to end with.
fn attend(child: Pid, signals: &SigSet) -> i32 {
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => return exit_status(status),
            Ok(None) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => {
                error!("lost the daemon's process: {errno}");
                return 1;
            }
        }
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {}
            Ok(signal) => {
                debug!(%signal, "passing a signal on to the daemon");
                let signal = match signal {
                    Signal::SIGINT => rustix::process::Signal::INT,
                    Signal::SIGHUP => rustix::process::Signal::HUP,
                    _ => rustix::process::Signal::TERM,
                };
                // It may have ended meanwhile, which the next round sees.
                let _ = kill_process(child, signal);
            }
            Err(errno) => {
                error!("cannot wait for signals: {errno}");
                return 1;
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
    // As shells count.
    128 + signal
}

/// Keeps what removing the socket and passing signals on may take, which is nothing for most users.
fn reduce_capabilities() {
    let needed = [Capability::CAP_DAC_OVERRIDE, Capability::CAP_KILL];
    let kept = caps::read(None, CapSet::Permitted).unwrap_or_default().into_iter().filter(|cap| needed.contains(cap));
    let kept = kept.collect();
    for set in [CapSet::Effective, CapSet::Inheritable, CapSet::Permitted] {
        if let Err(error) = caps::set(None, set, &kept) {
            debug!(%error, "the keeper cannot drop capabilities");
        }
    }
}
