//! What the kernel asks while there is no daemon.
//!
//! Requests are put aside for the next one; whoever is interrupted meanwhile gets EINTR, and what is forgotten is forgotten here.
//! The end of the mount is seen here too.

use std::{os::fd::BorrowedFd, sync::Arc};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use transom_wire::{Opcode, ops::interrupt::InterruptIn};
use zerocopy::FromBytes as _;

use super::{Reconnect, request::Request};
use crate::{
    MountEnd,
    backlog::{Backlog, ParkedRequest},
    fuse_device::FuseDevice,
    mount_state::MountState,
    slots::REQUEST_LEN_MAX,
};

pub(super) struct Waiting<'s> {
    pub(super) devices: &'s [Arc<FuseDevice>],
    pub(super) backlog: &'s Backlog,
    pub(super) reconnect: &'s Reconnect,
    pub(super) state: &'s MountState,
}

impl Waiting<'_> {
    /// Reads until `done` is readable, or the mount ends.
    pub(super) fn run(&self, done: BorrowedFd<'_>) {
        let mut buffer = vec![0; REQUEST_LEN_MAX];
        // By turns, so that each thread gets some of what waits.
        for lane in (0..self.devices.len()).cycle() {
            match self
                .until_readable(lane, done)
                .and_then(|is_on| if is_on { self.take(lane, &mut buffer) } else { Err(None) })
            {
                Ok(()) => {}
                Err(None) => return,
                Err(Some(end)) => return self.state.end(end),
            }
        }
    }

    /// Blocks until there is a request and room for it; tells whether to go on.
    fn until_readable(&self, lane: usize, done: BorrowedFd<'_>) -> Result<bool, Option<MountEnd>> {
        let wanted = if self.backlog.has_room() { PollFlags::IN } else { PollFlags::empty() };
        let over = self.reconnect.over();
        let mut fds = [
            PollFd::new(&done, PollFlags::IN),
            PollFd::new(&over, PollFlags::IN),
            PollFd::new(&*self.devices[lane], wanted),
        ];
        match poll(&mut fds, None) {
            Ok(_) => Ok(fds[0].revents().is_empty() && fds[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Some(MountEnd::Kernel(errno))),
        }
    }

    fn take(&self, lane: usize, buffer: &mut [u8]) -> Result<(), Option<MountEnd>> {
        match self.devices[lane].read_into(buffer) {
            Ok(len) => {
                self.put_aside(lane, &buffer[..len]);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(()),
            Err(errno @ (Errno::NODEV | Errno::CONNABORTED)) => Err(Some(MountEnd::of_reading(errno))),
            Err(errno) => Err(Some(MountEnd::Kernel(errno))),
        }
    }

    fn put_aside(&self, lane: usize, message: &[u8]) {
        let Some(request) = Request::new(message) else { return };
        match request.opcode {
            Some(Opcode::Forget | Opcode::BatchForget) => {
                let mut tables = self.reconnect.tables.lock();
                let forgotten = tables.forgotten(message);
                tables.owed.extend(forgotten);
            }
            Some(Opcode::Interrupt) => {
                let about = InterruptIn::read_from_prefix(request.args).map(|(about, _)| about.unique.get());
                if let Some(parked) = about.ok().and_then(|unique| self.backlog.take_named(unique)) {
                    // Nobody waits any more where this fails.
                    let _ = self.devices[parked.worker].fail(parked.header.unique.get(), Errno::INTR);
                }
            }
            // Nothing of it is left to be flushed: what was written is in the host's hands, and the locks are gone. A process that
            // starts the next daemon may close files of this mount on the way, and must not wait for that daemon.
            Some(Opcode::Flush) => {
                // Nobody waits any more where this fails.
                let _ = self.devices[lane].done(request.header.unique.get());
            }
            // No program waits for these, so nothing bounds how many come. What no daemon has open is closed.
            Some(Opcode::Release | Opcode::Releasedir) if self.reconnect.close_lost(request.handle()) => {
                // Nobody waits any more where this fails.
                let _ = self.devices[lane].done(request.header.unique.get());
            }
            _ => self.backlog.put(ParkedRequest { worker: lane, header: request.header, message: message.to_vec() }),
        }
    }
}
