//! [`Connection`]: what the workers of one connection to a daemon share, and how it ends for all of them.
//!
//! With the connection the mount ends, unless it [reconnects](super::reconnect). The first thread that finds a reason
//! to end records it. The descriptors of `/dev/fuse` are then released, so that the kernel fails all requests with
//! ENOTCONN if nobody else has them, and all threads wake up. Lock: `end`, held for a moment with nothing under it.

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
use transom_user::transport::VhostUser;

use super::{
    MountEnd, backlog::Backlog, coherence::Coherence, fuse_devices::FuseDevices, hiprio::HiprioQueue,
    passthrough::Passthrough, reconnect::Reconnect,
};

/// A connection to a daemon, as all workers see it.
pub(super) struct Connection {
    /// To be dropped before the rings and slots, which the workers hold.
    pub(super) device: VhostUser,
    hiprio: HiprioQueue,
    /// Readable once the connection has ended.
    stop: OwnedFd,
    /// The descriptor of each worker; empty after the end.
    pub(super) devices: Arc<FuseDevices>,
    end: Mutex<Option<MountEnd>>,
    /// Requests that came when every slot was taken.
    pub(super) backlog: Arc<Backlog>,
    /// Present if the mount may outlive this connection.
    pub(super) reconnect: Option<Arc<Reconnect>>,
    pub(super) passthrough: Arc<Passthrough>,
    /// Present if the kernel's caches follow a version table.
    pub(super) coherence: Option<Arc<Coherence>>,
}

impl Connection {
    /// Creates a connection without descriptors of `/dev/fuse`.
    ///
    /// # Errors
    /// The eventfd could not be created.
    pub(super) fn new(
        device: VhostUser,
        hiprio: HiprioQueue,
        passthrough: Arc<Passthrough>,
        coherence: Option<Arc<Coherence>>,
        backlog: Arc<Backlog>,
        reconnect: Option<Arc<Reconnect>>,
    ) -> io::Result<Self> {
        Ok(Self {
            device,
            hiprio,
            stop: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            devices: Arc::default(),
            end: Mutex::new(None),
            backlog,
            reconnect,
            passthrough,
            coherence,
        })
    }

    /// Returns a descriptor that is readable once the connection has ended.
    pub(super) fn stop(&self) -> BorrowedFd<'_> {
        self.stop.as_fd()
    }

    /// Sends a message that has no reply. Blocks while the high-priority queue is full.
    ///
    /// # Errors
    /// The connection has ended.
    pub(super) fn send_hiprio(&self, message: &[u8]) -> Result<(), MountEnd> {
        self.hiprio.send(&self.device, self.stop(), message)
    }

    /// Ends the connection for `reason`, unless it has ended.
    pub(super) fn end(&self, reason: MountEnd) {
        {
            let mut end = self.end.lock();
            if end.is_some() {
                return;
            }
            *end = Some(reason);
        }
        // A device that broke the protocol must not be used any more. If it is gone, this does no harm.
        self.device.hang_up();
        self.devices.clear();
        if let Some(coherence) = &self.coherence {
            coherence.abort();
        }
        // Fails only for a bad descriptor or buffer.
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
    }

    /// Returns why the connection has ended, if it has.
    pub(super) fn cause(&self) -> Option<MountEnd> {
        *self.end.lock()
    }

    /// Answers the request `unique` with EINTR if it is in the backlog. Returns whether it was.
    pub(super) fn interrupt_parked(&self, unique: u64) -> bool {
        let Some(parked) = self.backlog.take_named(unique) else { return false };
        if let Some(device) = self.devices.get(parked.worker) {
            // If this fails, nobody waits for the reply.
            let _ = device.fail(unique, Errno::INTR);
        }
        true
    }
}
