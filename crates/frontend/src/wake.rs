//! What one side wakes the other with: an eventfd, or a pipe as User Mode Linux uses.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    pipe::{PipeFlags, pipe_with},
};

/// Which kind of descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WakeKind {
    /// One descriptor for both sides.
    EventFd,
    /// An end for each side.
    Pipe,
}

/// One direction of waking.
pub struct Wake {
    waits: OwnedFd,
    /// `None` where one descriptor does both.
    wakes: Option<OwnedFd>,
}

impl Wake {
    /// A pair that blocks neither side.
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

    /// The end of the side that waits.
    pub fn waiting_end(&self) -> BorrowedFd<'_> {
        self.waits.as_fd()
    }

    /// The end of the side that wakes.
    pub fn waking_end(&self) -> BorrowedFd<'_> {
        self.wakes.as_ref().unwrap_or(&self.waits).as_fd()
    }

    /// Wakes the other side; one that has too many wake-ups waiting already is awake.
    pub fn wake(&self) -> io::Result<()> {
        match rustix::io::write(self.waking_end(), &1u64.to_ne_bytes()) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits to be woken and takes all wake-ups; false after `timeout`.
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
