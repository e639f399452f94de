//! The supervisor's signals, and waiting for other things without missing them.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    time::{Duration, Instant},
};

use nix::sys::{
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The signals that came, and a descriptor that says so.
#[derive(Debug)]
pub(super) struct Signals {
    fd: SignalFd,
    /// SIGTERM or SIGINT: the daemon is to end.
    pub(super) is_ending: bool,
    /// SIGHUP: the daemon is to be upgraded.
    pub(super) is_upgrade_wanted: bool,
}

/// Why something that was waited for did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WaitError {
    #[error("the time limit is reached")]
    TimedOut,
    #[error("the daemon is to end")]
    Ending,
    #[error("the daemon has closed its connection")]
    Gone,
    #[error("the daemon sent an unknown answer")]
    Unknown,
    #[error("cannot wait: {0}")]
    Failed(rustix::io::Errno),
}

impl Signals {
    /// Receives the signals from now on. This process must have one thread.
    pub(super) fn new() -> io::Result<Self> {
        let all: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect();
        all.thread_block()?;
        let fd = SignalFd::with_flags(&all, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        Ok(Self { fd, is_ending: false, is_upgrade_wanted: false })
    }

    /// Waits until one of `fds` is ready or a signal has come, or until `deadline`.
    pub(super) fn wait(
        &mut self,
        fds: &[(BorrowedFd<'_>, PollFlags)],
        deadline: Option<Instant>,
    ) -> Result<(), WaitError> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Err(WaitError::TimedOut);
        }
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut polled = vec![PollFd::from_borrowed_fd(self.fd.as_fd(), PollFlags::IN)];
        polled.extend(fds.iter().map(|&(fd, events)| PollFd::from_borrowed_fd(fd, events)));
        match poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return Err(WaitError::TimedOut),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(WaitError::Failed(errno)),
        }
        self.take();
        if self.is_ending { Err(WaitError::Ending) } else { Ok(()) }
    }

    fn take(&mut self) {
        while let Ok(Some(signal)) = self.fd.read_signal() {
            match Signal::try_from(signal.ssi_signo.cast_signed()) {
                Ok(Signal::SIGTERM | Signal::SIGINT) => self.is_ending = true,
                Ok(Signal::SIGHUP) => self.is_upgrade_wanted = true,
                // Whoever waits looks at its children itself.
                _ => {}
            }
        }
    }
}
