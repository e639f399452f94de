//! The transport for the messages of a FUSE session.
//!
//! A [`Channel`] is a device's set of virtqueues or, in tests, a server in the same process. It knows nothing of FUSE
//! except where a message ends. It checks that lengths are possible; the caller checks the reply.

use alloc::{sync::Arc, vec::Vec};
use core::{ops::Range, ptr::NonNull, task::Waker};

use thiserror::Error;

use crate::{
    dma::{DmaBuffer, DmaError},
    memory::{Pieces, PiecesMut},
    transport::ShmRegion,
};

/// Carries FUSE messages to one device and its replies back.
pub trait Channel: Send + Sync {
    /// Returns the number of request queues, at least 1.
    fn request_queues(&self) -> u16;

    /// Returns the maximum length of the data in one message in either direction, not counting header and arguments.
    fn data_len_max(&self) -> usize;

    /// Returns how many bytes of `pieces`, from the first one on, one message carries as [`Source::Slices`] or
    /// [`Sink::Slices`], without a copy; 0 if they have to be copied.
    fn in_place_len(&self, pieces: &mut dyn Iterator<Item = (NonNull<u8>, usize)>) -> usize {
        pieces.fold(0, |sum: usize, (_, len_bytes)| sum.saturating_add(len_bytes)).min(self.data_len_max())
    }

    /// Sends `message` on a request queue and blocks until its reply has come.
    ///
    /// `queue` must be less than [`Self::request_queues`]. Returns the number of bytes that the device reports as
    /// written, which is at most the room in the message. Holds no lock while it waits.
    ///
    /// # Errors
    /// If it fails with [`ChannelError::Broken`] or [`ChannelError::Gone`], the device can no longer reach the
    /// caller's buffers.
    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError>;

    /// Sends a message whose buffers the channel keeps, and returns at once; [`Self::finish`] returns the reply.
    ///
    /// Blocks only while the queue is full.
    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError>;

    /// Blocks until the reply has come. A ticket can be finished once; an unknown ticket fails with
    /// [`ChannelError::Broken`].
    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError>;

    /// Returns whether [`Self::finish`] would return without blocking.
    fn is_finished(&self, ticket: &Ticket) -> bool;

    /// Calls `waker` once [`Self::finish`] would return without blocking; returns whether it would now. Only the waker
    /// of the last call counts. It is called by whoever receives the reply, perhaps an interrupt handler, in which it
    /// may only mark its task.
    ///
    /// By default, the waker is called at once, so that its task asks again.
    fn watch(&self, ticket: &Ticket, waker: &Waker) -> bool {
        let is_finished = self.is_finished(ticket);
        if !is_finished {
            waker.wake_by_ref();
        }
        is_finished
    }

    /// Receives replies to started messages of a queue until `is_over` returns true, or until the device is gone.
    ///
    /// Blocks. `is_over` is called at least once, after replies have come and their wakers were called, and now and
    /// then.
    fn drive(&self, queue: u16, is_over: &mut dyn FnMut() -> bool) {
        let _ = queue;
        while !is_over() && !self.is_gone() {
            core::hint::spin_loop();
        }
    }

    /// Forgets a started message, whose reply nobody will ask for. By default, waits for the reply.
    fn abandon(&self, ticket: Ticket) {
        let _ = self.finish(ticket);
    }

    /// Sends a message that has no reply, or whose reply nobody waits for, on the high-priority queue: FORGET,
    /// BATCH_FORGET, INTERRUPT. The message is sent when this returns. Blocks only while the queue is full.
    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError>;

    /// Allocates zeroed memory that the device reaches without a copy.
    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError>;

    /// Returns how many more bytes of [`Self::buffer`] may be kept long-term; with more, there may be no room for
    /// messages.
    fn keepable_bytes(&self) -> usize {
        usize::MAX
    }

    /// Returns the device's shared memory region with this id, if it has one.
    fn shm_region(&self, id: u8) -> Option<ShmRegion>;

    /// Returns the length of the longest notification, or `None` without a notification queue.
    fn notification_len_max(&self) -> Option<usize> {
        None
    }

    /// Takes the device's next notification into `to`, as [`Self::notification_len_max`] long, and returns its length.
    /// Returns `None` if none has come by `deadline_ns` of the platform's clock.
    ///
    /// Blocks. The device fills as many buffers as the driver has provided, and each is provided again once it is taken
    /// here, so the device decides what becomes of notifications that nobody takes.
    fn notification(&self, to: &mut [u8], deadline_ns: Option<u64>) -> Result<Option<usize>, ChannelError> {
        let _ = (to, deadline_ns);
        Err(ChannelError::Broken("it has no notification queue"))
    }

    /// Returns whether the device is known to have failed or to be gone. Takes no lock and does not block.
    fn is_gone(&self) -> bool {
        false
    }
}

/// One request and the room for its reply, borrowed for the duration of a [`Channel::call`].
pub struct Message<'a> {
    /// Header, arguments and names; copied before they are sent.
    pub head: &'a [u8],
    /// The data that follows them: the data of a WRITE, the value of a SETXATTR.
    pub data: Source<'a>,
    /// Room for the reply's header and fixed part, which are copied out.
    pub reply_head: &'a mut [u8],
    /// Room for the data that follows: the data of a READ, entries of a directory.
    pub reply_data: Sink<'a>,
}

/// Bytes for the device to read.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// No bytes.
    Empty,
    /// Ordinary memory: mapped for the device or copied, depending on its DMA operations.
    Bytes(&'a [u8]),
    /// Pieces of memory, each mapped for the device: at most [`Channel::in_place_len`] bytes, or one plain slice.
    Slices(Pieces<'a>),
    /// Memory that the device reaches directly, never copied. Offset and length lie within the buffer.
    Buffer(&'a DmaBuffer, usize, usize),
}

impl Source<'_> {
    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Slices(pieces) => pieces.len_bytes(),
            Self::Buffer(_, _, len_bytes) => *len_bytes,
        }
    }
}

/// Room for the device to fill.
pub enum Sink<'a> {
    /// No room.
    Empty,
    /// Ordinary memory: mapped for the device or copied, depending on its DMA operations.
    Bytes(&'a mut [u8]),
    /// Pieces of memory, each mapped for the device: at most [`Channel::in_place_len`] bytes, or one plain slice.
    Slices(PiecesMut<'a>),
    /// Memory that the device reaches directly, never copied. Offset and length lie within the buffer.
    Buffer(&'a DmaBuffer, usize, usize),
}

impl Sink<'_> {
    /// Returns the length in bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Slices(pieces) => pieces.len_bytes(),
            Self::Buffer(_, _, len_bytes) => *len_bytes,
        }
    }
}

/// A request that owns its buffers.
pub struct OwnedMessage {
    /// Header, arguments and names.
    pub head: Vec<u8>,
    /// The data that follows the head.
    pub data: Option<(Arc<DmaBuffer>, Range<usize>)>,
    /// Room for the reply's header and fixed part, in bytes.
    pub reply_head_len: usize,
    /// Room for the data that follows the fixed part.
    pub reply_data: Option<(Arc<DmaBuffer>, Range<usize>)>,
}

/// The reply to an [`OwnedMessage`].
pub struct OwnedReply {
    /// Header and fixed part, as long as the message asked for; bytes that were not written are zero.
    pub head: Vec<u8>,
    /// Number of bytes that the device reports as written, head and data together.
    pub written: usize,
}

/// Identifies a started message.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Why a message got no reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The device violated the protocol; this queue carries no more messages.
    #[error("the device broke the protocol: {0}")]
    Broken(&'static str),
    /// The device, or the process that implements it, is gone.
    #[error("the device is gone")]
    Gone,
    /// No memory is available that the device can reach.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// The message is longer than the queue can carry.
    #[error("a message of {len_bytes} bytes exceeds what the queue carries, {len_max_bytes}")]
    TooLong {
        /// Its length.
        len_bytes: usize,
        /// The limit.
        len_max_bytes: usize,
    },
}
