//! Notification descriptors: an eventfd, or a pipe as User Mode Linux uses.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    pipe::{PipeFlags, pipe_with},
};

/// The kind of descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeKind {
    /// One descriptor shared by both sides.
    EventFd,
    /// One end for each side.
    Pipe,
}

/// Notifications in one direction.
pub struct Wake {
    waits: OwnedFd,
    /// `None` if one descriptor serves both sides.
    wakes: Option<OwnedFd>,
}

impl Wake {
    /// Creates a pair of non-blocking ends.
    pub fn new(kind: WakeKind) -> io::Result<Self> {
        Ok(match kind {
            WakeKind::EventFd => {
                Self { waits: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?, wakes: None }
            }
            WakeKind::Pipe => {
                let (waits, wakes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
                Self { waits, wakes: Some(wakes) }
            }
        })
    }

    /// Returns the end of the waiting side.
    pub fn waiting_end(&self) -> BorrowedFd<'_> {
        self.waits.as_fd()
    }

    /// Returns the end of the notifying side.
    pub fn waking_end(&self) -> BorrowedFd<'_> {
        self.wakes.as_ref().unwrap_or(&self.waits).as_fd()
    }

    /// Notifies the other side. Succeeds if too many notifications are pending, since that side is awake.
    pub fn wake(&self) -> io::Result<()> {
        match rustix::io::write(self.waking_end(), &1u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits for a notification and consumes all that are pending. Returns false after `timeout`.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.waits, PollFlags::IN)];
        loop {
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut wakeups = [0u8; 8];
        while rustix::io::read(&self.waits, &mut wakeups).is_ok_and(|len| len > 0) {}
        Ok(true)
    }
}
