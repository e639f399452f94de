//! The client side of a FUSE session: INIT, request numbers, forgets, interrupts, DESTROY.
//!
//! [`Session`] sends typed requests over a [`Channel`] and checks every reply before anybody sees it. The operations
//! are in [`ops`](crate::ops), one file each; those block. A [`Pending`] is any of them, started and not waited for.
//! [`request`] holds the path that all of them take, [`reply`] the checks. Nothing here is cached. The only locks
//! are those of the forgets and of the dropped requests, and no message is sent while one is held.

mod answer;
mod changes;
mod counters;
mod entry;
mod forget;
mod head;
mod interrupt;
mod negotiate;
mod orphans;
mod pending;
mod prepared;
mod raised;
mod reply;
mod request;
mod sent;
mod started;
mod unsupported;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use transom_wire::{NodeId, operation::Destroy};

use crate::{
    Errno, Platform,
    channel::{Channel, Message, Sink, Source},
    platform::Event as _,
};
use counters::Tally;
use forget::Forgets;
use head::complete_header;
use orphans::Orphans;
use reply::HEADER_LEN;
use unsupported::Unsupported;

pub(crate) use head::{EXTENSION_UNITS, Head, Named, Plain, TwiceNamed, header};
pub(crate) use sent::is_list;
pub(crate) use started::Started;

pub use answer::Answer;
pub use changes::Changes;
pub use counters::Counters;
pub use interrupt::Interrupt;
pub use negotiate::{MINOR_VERSION_MIN, Negotiated, PAGE_LEN, SessionConfig, SessionError};
pub use pending::Pending;
pub use prepared::Request;
pub use raised::RaisedSlots;
pub use reply::WithBytes;
pub use request::Caller;
pub use sent::Sent;

/// A session with one server, used by any number of threads. Ended by [`Self::destroy`] or when it is dropped.
pub struct Session<P: Platform> {
    channel: Arc<dyn Channel>,
    platform: Arc<P>,
    request_queues: u16,
    negotiated: Negotiated,
    /// The number of the next request.
    uniques: AtomicU64,
    forgets: Forgets<P>,
    orphans: Orphans<P>,
    unsupported: Unsupported,
    tally: Tally,
    waiting: Arc<P::Event>,
    is_destroyed: AtomicBool,
}

impl<P: Platform> Session<P> {
    /// Sends INIT as `config` asks, and checks what the server answers.
    ///
    /// Blocks until the reply has come.
    pub fn begin(channel: Arc<dyn Channel>, platform: Arc<P>, config: SessionConfig) -> Result<Self, SessionError> {
        let negotiated = negotiate::negotiate(&*channel, &config)?;
        Ok(Self {
            request_queues: channel.request_queues().max(1),
            channel,
            platform,
            negotiated,
            uniques: AtomicU64::new(negotiate::INIT_UNIQUE.0 + 2),
            forgets: Forgets::new(),
            orphans: Orphans::new(),
            unsupported: Unsupported::default(),
            tally: Tally::default(),
            waiting: Arc::default(),
            is_destroyed: AtomicBool::new(false),
        })
    }

    /// Returns the result of INIT.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// Returns the system that the library runs in.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Returns the channel that carries the messages.
    pub fn channel(&self) -> &Arc<dyn Channel> {
        &self.channel
    }

    /// Creates a handle with which to end requests early, for [`Caller::interrupt`].
    pub fn interrupt(&self) -> Interrupt {
        let waiting = Arc::clone(&self.waiting);
        Interrupt::new(Arc::clone(&self.channel), Arc::new(move || waiting.wake_all()))
    }

    /// Returns the event on which callers wait for another user of this guest; a raised [`Interrupt`] of such a wait
    /// wakes it.
    pub(crate) fn waiting(&self) -> &P::Event {
        &self.waiting
    }

    /// Returns the changes that others make in the share, or `None` if the server does not tell of any.
    pub fn changes(&self) -> Option<Changes> {
        Changes::new(&self.channel)
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.tally.read(self.uniques.load(Ordering::Relaxed) / 2 - 1)
    }

    /// Sends the queued forgets and DESTROY, after which the server holds nothing for this session. Only the first call
    /// has an effect.
    ///
    /// Blocks until the reply has come. Errors: those of the channel.
    pub fn destroy(&self) -> Result<(), Errno> {
        if self.is_destroyed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let flushed = self.flush_forgets();
        let mut head = Plain::<Destroy>::new(NodeId(0), &Caller::default(), &());
        complete_header(head.as_mut_bytes(), 0, self.next_unique());
        // virtiofsd returns the buffers without a reply in them; only their return counts.
        let (data, reply_data) = (Source::Empty, Sink::Empty);
        let message = Message { head: head.as_mut_bytes(), data, reply_head: &mut [0; HEADER_LEN], reply_data };
        self.channel.call(0, message)?;
        flushed
    }
}

impl<P: Platform> Drop for Session<P> {
    /// Ignores errors: a server that no longer answers has already lost the session.
    fn drop(&mut self) {
        let _ = self.destroy();
    }
}
