//! What the kernel asks while there is no daemon.
//!
//! Requests are put aside for the next one; whoever is interrupted meanwhile gets EINTR, and what is forgotten is
//! forgotten here. The end of the mount is seen here too.

use std::{os::fd::BorrowedFd, sync::Arc};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
};
use transom_wire::{operation::Account, ops::interrupt::InterruptIn};
use zerocopy::FromBytes as _;

use super::{Reconnect, request::Request};
use crate::{
    End,
    backlog::{Backlog, Parked},
    kernel::Kernel,
    served::Served,
    slots::REQUEST_LEN_MAX,
};

pub(super) struct Waiting<'s> {
    pub(super) kernels: &'s [Arc<Kernel>],
    pub(super) backlog: &'s Backlog,
    pub(super) reconnect: &'s Reconnect,
    pub(super) served: &'s Served,
}

impl Waiting<'_> {
    /// Reads until `done` is readable, or the mount ends.
    pub(super) fn run(&self, done: BorrowedFd<'_>) {
        let mut buffer = vec![0; REQUEST_LEN_MAX];
        // By turns, so that each thread gets some of what waits.
        for lane in (0..self.kernels.len()).cycle() {
            match self
                .until_readable(lane, done)
                .and_then(|is_on| if is_on { self.take(lane, &mut buffer) } else { Err(None) })
            {
                Ok(()) => {}
                Err(None) => return,
                Err(Some(end)) => return self.served.end(end),
            }
        }
    }

    /// Blocks until there is a request and room for it; tells whether to go on.
    fn until_readable(&self, lane: usize, done: BorrowedFd<'_>) -> Result<bool, Option<End>> {
        let wanted = if self.backlog.has_room() { PollFlags::IN } else { PollFlags::empty() };
        let over = self.reconnect.over();
        let mut fds = [
            PollFd::new(&done, PollFlags::IN),
            PollFd::new(&over, PollFlags::IN),
            PollFd::new(&*self.kernels[lane], wanted),
        ];
        match poll(&mut fds, None) {
            Ok(_) => Ok(fds[0].revents().is_empty() && fds[1].revents().is_empty()),
            Err(Errno::INTR) => Ok(true),
            Err(errno) => Err(Some(End::Kernel(errno))),
        }
    }

    fn take(&self, lane: usize, buffer: &mut [u8]) -> Result<(), Option<End>> {
        match self.kernels[lane].read_into(buffer) {
            Ok(len) => {
                self.put_aside(lane, &buffer[..len]);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => Ok(()),
            Err(errno @ (Errno::NODEV | Errno::CONNABORTED)) => Err(Some(End::of_reading(errno))),
            Err(errno) => Err(Some(End::Kernel(errno))),
        }
    }

    fn put_aside(&self, lane: usize, message: &[u8]) {
        let Some(request) = Request::new(message) else { return };
        match request.account() {
            Account::Forgets => {
                let mut tables = self.reconnect.tables.lock();
                let forgotten = tables.forgotten(message);
                tables.owed.extend(forgotten);
            }
            Account::Interrupts => {
                let about = InterruptIn::read_from_prefix(request.args).map(|(about, _)| about.unique.get());
                if let Some(parked) = about.ok().and_then(|unique| self.backlog.take_named(unique)) {
                    // Nobody waits any more where this fails.
                    let _ = self.kernels[parked.lane].fail(parked.header.unique.get(), Errno::INTR);
                }
            }
            // Nothing of it is left to be flushed: what was written is in the host's hands, and the locks are gone. A
            // process that starts the next daemon may close files of this mount on the way, and must not wait for that
            // daemon.
            Account::Flushes => {
                // Nobody waits any more where this fails.
                let _ = self.kernels[lane].done(request.header.unique.get());
            }
            // No program waits for these, so nothing bounds how many come. What no daemon has open is closed.
            Account::Closes if self.reconnect.close_lost(request.handle()) => {
                // Nobody waits any more where this fails.
                let _ = self.kernels[lane].done(request.header.unique.get());
            }
            Account::None
            | Account::LooksUp
            | Account::Makes(_)
            | Account::Opens
            | Account::MakesAndOpens
            | Account::OpensNameless
            | Account::Lists
            | Account::Removes
            | Account::Renames
            | Account::Closes
            | Account::Locks => self.backlog.put(Parked { lane, header: request.header, message: message.to_vec() }),
        }
    }
}
