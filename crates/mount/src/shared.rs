//! What the threads of one connection have in common, and how it ends for all of them: with it the mount, unless that
//! [reconnects](super::reconnect).
//!
//! The first thread that meets the end says why: the kernel's descriptors are then let go of, which, where nobody else has
//! them, makes the kernel answer every request that waits and every later one with ENOTCONN, and all threads wake.
//! Locks: `kernels` and `end`, each held for a moment with nothing under it.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};

use super::{
    End, backlog::Backlog, kernel::Kernel, passthrough::Passthrough, priority::Priority, reconnect::Reconnect,
};
use transom_user::transport::VhostUser;

/// The common part of a mount.
pub(super) struct Shared {
    /// Is to end before the rings and slots, which the threads hold.
    pub(super) device: VhostUser,
    pub(super) priority: Priority,
    /// Readable once the mount has ended.
    stop: OwnedFd,
    /// One for each thread; empty after the end.
    kernels: Mutex<Vec<Arc<Kernel>>>,
    end: Mutex<Option<End>>,
    /// Requests that came when every slot was taken.
    pub(super) backlog: Arc<Backlog>,
    /// Where the mount may outlive this connection.
    pub(super) reconnect: Option<Arc<Reconnect>>,
    pub(super) passthrough: Passthrough,
}

impl Shared {
    pub(super) fn new(
        device: VhostUser,
        priority: Priority,
        passthrough: Passthrough,
        backlog: Arc<Backlog>,
        reconnect: Option<Arc<Reconnect>>,
    ) -> io::Result<Self> {
        Ok(Self {
            device,
            priority,
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            kernels: Mutex::default(),
            end: Mutex::new(None),
            backlog,
            reconnect,
            passthrough,
        })
    }

    /// The threads' descriptors, before they run.
    pub(super) fn serve(&self, kernels: Vec<Arc<Kernel>>) {
        *self.kernels.lock() = kernels;
    }

    pub(super) fn stop(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// The descriptor of thread `lane`, until the end.
    pub(super) fn kernel(&self, lane: usize) -> Option<Arc<Kernel>> {
        self.kernels.lock().get(lane).cloned()
    }

    /// Ends the mount for `why`, unless it has ended.
    pub(super) fn end(&self, why: End) {
        {
            let mut end = self.end.lock();
            if end.is_some() {
                return;
            }
            *end = Some(why);
        }
        // A device that broke its promises is not talked to any more; of one that is gone this makes sure.
        self.device.hang_up();
        self.kernels.lock().clear();
        // It fails for a bad number or buffer only.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Why it has ended.
    pub(super) fn cause(&self) -> Option<End> {
        *self.end.lock()
    }

    /// Answers the request `unique` with EINTR if it still waits for a slot; tells whether it did.
    pub(super) fn interrupt_parked(&self, unique: u64) -> bool {
        let Some(parked) = self.backlog.take_named(unique) else { return false };
        if let Some(kernel) = self.kernel(parked.lane) {
            // Nobody waits any more where this fails.
            let _ = kernel.fail(unique, Errno::INTR);
        }
        true
    }
}
