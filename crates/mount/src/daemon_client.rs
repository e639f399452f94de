//! Requests of the mount's own to a daemon that no worker uses yet: INIT, and what a new daemon is asked for.

use std::{sync::Arc, time::Duration};

use rustix::io::Errno;
use transom_guest::{ring::Used, transport::Transport as _};
use transom_user::platform::now_ns;
use transom_wire::header::{InHeader, OutHeader};
use zerocopy::FromBytes as _;

use super::{
    InitError, MountEnd, connection::Connection, event_waiter::EventWaiter, fuse_device::FuseDevice,
    passthrough::RequestKind, reply_out::read_header, request_queue::RequestQueue,
};

/// Sends requests through one queue and blocks for the replies.
pub(super) struct DaemonClient<'w> {
    queue: &'w mut RequestQueue,
    connection: &'w Arc<Connection>,
    device: &'w FuseDevice,
    waiter: EventWaiter,
}

impl<'w> DaemonClient<'w> {
    /// Creates a client of `queue`, with a waiter for the same queue and `device`.
    pub(super) fn new(
        queue: &'w mut RequestQueue,
        connection: &'w Arc<Connection>,
        device: &'w FuseDevice,
        waiter: EventWaiter,
    ) -> Self {
        Self { queue, connection, device, waiter }
    }

    /// Returns the connection to the daemon.
    pub(super) fn connection(&self) -> &'w Arc<Connection> {
        self.connection
    }

    /// Returns the descriptor of `/dev/fuse`.
    pub(super) fn device(&self) -> &'w FuseDevice {
        self.device
    }

    /// Returns a free slot, if there is one.
    pub(super) fn take_slot(&mut self) -> Option<u16> {
        self.queue.take_slot()
    }

    /// Returns whether [`Self::take_slot`] would succeed.
    pub(super) fn has_free_slot(&self) -> bool {
        self.queue.has_free_slot()
    }

    /// Reads the kernel's first request, and returns a copy of it.
    ///
    /// # Errors
    /// The mount has ended, or `deadline` has passed.
    pub(super) fn read_request(&mut self, slot: u16, deadline: &Deadline) -> Result<Vec<u8>, InitError> {
        loop {
            match self.device.read(self.queue.request_buffer(slot)) {
                Ok(len_bytes) => {
                    let mut request = vec![0; len_bytes];
                    self.queue.read_request(slot, &mut request);
                    return Ok(request);
                }
                Err(Errno::AGAIN | Errno::INTR) => self.waiter.wait(true, Some(deadline.at_ns))?,
                Err(errno) => return Err(InitError::End(MountEnd::Kernel(errno))),
            }
            deadline.check()?;
        }
    }

    /// Sends `message` from `slot`. Does nothing if it is too short for a request.
    pub(super) fn send(&mut self, slot: u16, message: &[u8]) {
        let Ok((header, _)) = InHeader::read_from_prefix(message) else { return };
        self.queue.write_request(slot, message);
        let args = self.queue.args(slot, message.len());
        if self.queue.submit(slot, &header, message.len(), &args, RequestKind::Forwarded) {
            self.connection.device.notify(self.queue.index());
        }
    }

    /// Blocks until a reply comes. Returns its slot, which is free again, and a copy of the reply's body.
    ///
    /// # Errors
    /// The outer error says why no reply came, the inner one what the reply was instead of a success.
    pub(super) fn wait_reply(&mut self, deadline: &Deadline) -> Result<(u16, Result<Vec<u8>, InitError>), InitError> {
        let used = self.wait_used(deadline)?;
        let body = self.copy_body(used);
        self.queue.complete(used.cookie);
        Ok((used.cookie, body))
    }

    fn wait_used(&mut self, deadline: &Deadline) -> Result<Used, InitError> {
        loop {
            if let Some(used) = self.queue.pop()? {
                return Ok(used);
            }
            deadline.check()?;
            if !self.queue.enable_signal() {
                self.waiter.wait(false, Some(deadline.at_ns))?;
            }
            self.queue.disable_signal();
            if self.connection.device.is_gone() {
                return Err(InitError::End(MountEnd::Gone));
            }
        }
    }

    fn copy_body(&self, used: Used) -> Result<Vec<u8>, InitError> {
        let request = self.queue.in_flight(used.cookie);
        let buffer = self.queue.reply_buffer(used.cookie, request.len_bytes);
        let header = read_header(buffer.memory, buffer.offset, used.written_bytes as usize);
        let header = header.ok_or(InitError::InvalidReply)?;
        if header.error.get() != 0 {
            return Err(InitError::Refused(Errno::from_raw_os_error(-header.error.get())));
        }
        let mut body = vec![0; header.len.get() as usize - size_of::<OutHeader>()];
        buffer.memory.read(buffer.offset + size_of::<OutHeader>(), &mut body);
        Ok(body)
    }
}

/// When a reply is too late.
pub(super) struct Deadline {
    at_ns: u64,
    seconds: u64,
}

impl Deadline {
    /// Creates a deadline `timeout` from now.
    pub(super) fn after(timeout: Duration) -> Self {
        Self { at_ns: now_ns() + timeout.as_nanos() as u64, seconds: timeout.as_secs() }
    }

    fn check(&self) -> Result<(), InitError> {
        if now_ns() < self.at_ns { Ok(()) } else { Err(InitError::TimedOut(self.seconds)) }
    }
}
