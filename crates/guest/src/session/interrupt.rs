//! Ending a request early: INTERRUPT, on the high-priority queue.
//!
//! A request that blocks in the server (on a lock that another client holds) ends with EINTR once the server has
//! noticed. The message may overtake its request, which a server has to expect; to be certain, a caller raises the
//! interrupt again until the request is over. One atomic word holds the number of the request in flight and, in bit 0,
//! whether it is to be interrupted. Waiting for another user of this guest is recorded under the number of INIT, which
//! is over, and ends without a message.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use transom_wire::{NodeId, Unique, header::InHeader, operation, ops::interrupt::InterruptIn};

use super::{
    head::{Head, complete_header},
    negotiate::INIT_UNIQUE,
    request::Caller,
};
use crate::{Errno, channel::Channel};

/// Set while an interrupt is requested; request numbers are even.
const RAISED: u64 = 1;

const MESSAGE_LEN: usize = size_of::<InHeader>() + size_of::<InterruptIn>();

/// Interrupts the request of the [`Caller`] that refers to it, one request at a time.
pub struct Interrupt {
    channel: Arc<dyn Channel>,
    /// Wakes callers that wait for another user of this guest.
    wake: Arc<dyn Fn() + Send + Sync>,
    /// The number of the request in flight or 0, and [`RAISED`].
    state: AtomicU64,
}

impl Interrupt {
    pub(super) fn new(channel: Arc<dyn Channel>, wake: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self { channel, wake, state: AtomicU64::new(0) }
    }

    /// Interrupts the request in flight and, until [`Self::clear`], makes further ones fail with EINTR.
    ///
    /// Returns whether a request is in flight: it ends with EINTR, or with its own result if that came first. Each call
    /// sends another INTERRUPT. Errors: those of the channel; the interrupt stays requested.
    pub fn raise(&self) -> Result<bool, Errno> {
        let unique = self.state.fetch_or(RAISED, Ordering::AcqRel) & !RAISED;
        if unique == 0 {
            return Ok(false);
        }
        if unique == INIT_UNIQUE.0 {
            (self.wake)();
            return Ok(true);
        }
        let arg = InterruptIn { unique: unique.into() };
        let mut head = Head::<operation::Interrupt, MESSAGE_LEN>::new(NodeId(0), &Caller::default(), &arg);
        complete_header(head.as_mut_bytes(), 0, Unique(unique | RAISED));
        self.channel.send_priority(head.as_mut_bytes())?;
        Ok(true)
    }

    /// Allows requests again.
    pub fn clear(&self) {
        self.state.fetch_and(!RAISED, Ordering::AcqRel);
    }

    /// Returns whether an interrupt is requested.
    pub fn is_raised(&self) -> bool {
        self.state.load(Ordering::Acquire) & RAISED != 0
    }

    /// Records a wait for another user of this guest; the waiter checks [`Self::is_raised`]. Errors: as for a request.
    pub(crate) fn enter_wait(&self) -> Result<InFlight<'_>, Errno> {
        self.enter(INIT_UNIQUE)
    }

    /// Records a request in flight. Errors: EINTR if an interrupt is requested, EBUSY if another request is in flight.
    pub(super) fn enter(&self, unique: Unique) -> Result<InFlight<'_>, Errno> {
        match self.state.compare_exchange(0, unique.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(InFlight(self)),
            Err(state) if state & RAISED != 0 => Err(Errno::INTR),
            Err(_) => Err(Errno::BUSY),
        }
    }
}

/// A request or a wait that an [`Interrupt`] can reach, until it is dropped.
pub(crate) struct InFlight<'a>(&'a Interrupt);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_and(RAISED, Ordering::AcqRel);
    }
}
