//! An eventfd, by which either side notifies the other of a queue.

#![expect(unsafe_code, reason = "the vhost crate's eventfd type can only be made from a raw descriptor")]

use std::{
    io,
    os::fd::{AsFd, FromRawFd as _, IntoRawFd as _, OwnedFd},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::Errno,
};
use vmm_sys_util::eventfd::EventFd;

use crate::platform;

/// An eventfd that counts wakes until they are consumed.
#[derive(Debug)]
pub(super) struct Wake(OwnedFd);

impl Wake {
    /// Creates an eventfd whose readers block.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self(eventfd(0, EventfdFlags::CLOEXEC)?))
    }

    /// Returns a duplicate of the descriptor.
    pub(super) fn share(&self) -> io::Result<EventFd> {
        let fd = self.0.try_clone()?.into_raw_fd();
        // SAFETY: the line above opened this eventfd descriptor, and no one else closes it.
        Ok(unsafe { EventFd::from_raw_fd(fd) })
    }

    /// Wakes a waiter. Blocks only after 2⁶⁴ wakes that no one consumed.
    pub(super) fn wake(&self) {
        // A write to an eventfd fails only for an invalid descriptor or buffer, and cannot be interrupted because it
        // does not block.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Blocks until a wake, or until `deadline_ns` on the monotonic clock; may return early.
    pub(super) fn wait(&self, deadline_ns: Option<u64>) {
        if deadline_ns.is_some() && !is_readable(&self.0, deadline_ns) {
            return;
        }
        let mut count = [0; 8];
        if rustix::io::read(&self.0, &mut count) == Err(Errno::AGAIN) {
            // The other side made the eventfd non-blocking: the flag is shared.
            is_readable(&self.0, deadline_ns);
            let _ = rustix::io::read(&self.0, &mut count);
        }
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Polls once; a signal interrupts that.
fn is_readable(fd: &OwnedFd, deadline_ns: Option<u64>) -> bool {
    let timeout = deadline_ns.map(|deadline_ns| platform::timespec(platform::until(deadline_ns)));
    poll(&mut [PollFd::new(fd, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_is_taken_by_it() {
        let wake = Wake::new().unwrap();
        wake.wake();
        wake.wait(None);
        assert!(!is_readable(&wake.0, Some(0)));
    }

    #[test]
    fn a_wait_without_a_wake_ends_at_its_deadline() {
        let wake = Wake::new().unwrap();
        let deadline_ns = platform::now_ns() + 1_000_000;
        wake.wait(Some(deadline_ns));
        assert!(platform::now_ns() >= deadline_ns);
    }

    #[test]
    fn a_daemon_that_makes_the_eventfd_non_blocking_does_not_make_us_spin() {
        let wake = Wake::new().unwrap();
        rustix::io::ioctl_fionbio(&wake.0, true).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| wake.wake());
            wake.wait(None);
        });
        assert!(!is_readable(&wake.0, Some(0)));
    }
}
