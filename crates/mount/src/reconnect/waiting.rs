//! [`Waiting`]: reads the kernel's requests while there is no daemon.
//!
//! Requests wait in the backlog for the next daemon. An interrupted one is answered with EINTR, FORGET is handled here,
//! and so is the end of the mount.

use std::{os::fd::BorrowedFd, sync::Arc};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use transom_wire::{operation::Effect, ops::interrupt::InterruptIn};
use zerocopy::FromBytes as _;

use super::Reconnect;
use crate::{
    MountEnd,
    backlog::{Backlog, ParkedRequest},
    fuse_device::FuseDevice,
    mount_state::MountState,
    request::Request,
    slots::REQUEST_LEN_MAX,
};

/// What is needed to read requests between two daemons.
pub(super) struct Waiting<'s> {
    /// The descriptor of each worker.
    pub(super) devices: &'s [Arc<FuseDevice>],
    pub(super) backlog: &'s Backlog,
    pub(super) reconnect: &'s Reconnect,
    pub(super) state: &'s MountState,
}

impl Waiting<'_> {
    /// Reads until `done` is readable, or the mount ends.
    pub(super) fn run(&self, done: BorrowedFd<'_>) {
        let mut buffer = vec![0; REQUEST_LEN_MAX];
        // In turn, so that the requests are spread over the workers.
        for worker in (0..self.devices.len()).cycle() {
            match self
                .until_readable(worker, done)
                .and_then(|is_on| if is_on { self.take(worker, &mut buffer) } else { Err(None) })
            {
                Ok(()) => {}
                Err(None) => return,
                Err(Some(end)) => return self.state.end(end),
            }
        }
    }

    /// Blocks until there is a request and room for it. Returns whether to go on.
    fn until_readable(&self, worker: usize, done: BorrowedFd<'_>) -> Result<bool, Option<MountEnd>> {
        let wanted = if self.backlog.has_room() { PollFlags::IN } else { PollFlags::empty() };
        let over = self.reconnect.over();
        let mut fds = [
            PollFd::new(&done, PollFlags::IN),
            PollFd::new(&over, PollFlags::IN),
            PollFd::new(&*self.devices[worker], wanted),
        ];
        match poll(&mut fds, None) {
            Ok(_) => Ok(fds[0].revents().is_empty() && fds[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Some(MountEnd::Kernel(errno))),
        }
    }

    fn take(&self, worker: usize, buffer: &mut [u8]) -> Result<(), Option<MountEnd>> {
        match self.devices[worker].read_into(buffer) {
            Ok(len) => {
                self.put_aside(worker, &buffer[..len]);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(()),
            Err(errno @ (Errno::NODEV | Errno::CONNABORTED)) => Err(Some(MountEnd::of_reading(errno))),
            Err(errno) => Err(Some(MountEnd::Kernel(errno))),
        }
    }

    fn put_aside(&self, worker: usize, message: &[u8]) {
        let Some(request) = Request::new(message) else { return };
        match request.effect() {
            Effect::Forgets => {
                let mut tables = self.reconnect.tables.lock();
                let forgotten = tables.forgotten(message);
                tables.owed.extend(forgotten);
            }
            Effect::Interrupts => {
                let about = InterruptIn::read_from_prefix(request.args).map(|(about, _)| about.unique.get());
                if let Some(parked) = about.ok().and_then(|unique| self.backlog.take_named(unique)) {
                    // If this fails, nobody waits for the reply.
                    let _ = self.devices[parked.worker].fail(parked.header.unique.get(), Errno::INTR);
                }
            }
            // There is nothing to flush: the host has what was written, and the locks are gone. A process that starts
            // the next daemon may close files of this mount on the way, and must not wait for that daemon.
            Effect::Flushes => {
                // If this fails, nobody waits for the reply.
                let _ = self.devices[worker].done(request.header.unique.get());
            }
            // No program waits for these, so their number is not bounded. A file that no daemon has open is closed.
            Effect::Closes if self.reconnect.close_lost(request.handle()) => {
                // If this fails, nobody waits for the reply.
                let _ = self.devices[worker].done(request.header.unique.get());
            }
            Effect::None
            | Effect::LooksUp
            | Effect::Makes(_)
            | Effect::Opens
            | Effect::MakesAndOpens
            | Effect::OpensNameless
            | Effect::Lists
            | Effect::Removes
            | Effect::Renames
            | Effect::Closes
            | Effect::Locks => {
                self.backlog.put(ParkedRequest { worker, header: request.header, message: message.to_vec() })
            }
        }
    }
}
