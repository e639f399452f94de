//! What the FUSE session sends its messages through.
//!
//! A [`Channel`] is a device's set of virtqueues, or in tests a server in the same process. It knows nothing of FUSE
//! beyond where a message ends; it checks that lengths are possible, and whoever called checks the reply.

use alloc::{sync::Arc, vec::Vec};
use core::ops::Range;

use thiserror::Error;

use crate::{
    dma::{DmaBuffer, DmaError},
    transport::ShmRegion,
};

/// Carries FUSE messages to one device and its replies back.
pub trait Channel: Send + Sync {
    /// How many request queues there are, at least 1.
    fn request_queues(&self) -> u16;

    /// The most bytes of data, beside header and arguments, that one message can carry in either direction.
    fn data_len_max(&self) -> usize;

    /// Sends `message` on a request queue and blocks until its reply has come.
    ///
    /// `queue` is below [`Self::request_queues`]. Gives the number of bytes that the device says it has written, which
    /// is at most the room that there was. Holds no lock while it waits. Where it fails with [`ChannelError::Broken`]
    /// or [`ChannelError::Gone`], the device can no longer reach the caller's buffers.
    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError>;

    /// Sends a message whose buffers it keeps, and returns at once; [`Self::finish`] takes the reply.
    ///
    /// Blocks only while the queue is full.
    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError>;

    /// Blocks until the reply has come. Each ticket is finished once; an unknown one is [`ChannelError::Broken`].
    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError>;

    /// Whether [`Self::finish`] would not block.
    fn is_finished(&self, ticket: &Ticket) -> bool;

    /// Sends a message that has no reply, or one that nobody waits for, on the high-priority queue: FORGET,
    /// BATCH_FORGET, INTERRUPT. It is sent when this returns; blocks only while the queue is full.
    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError>;

    /// Memory that the device reaches without a copy, zeroed.
    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError>;

    /// How many more bytes of [`Self::buffer`] may be kept for long: beyond that there may be no room for messages.
    fn keepable_bytes(&self) -> usize {
        usize::MAX
    }

    /// The device's shared memory region with this id, where it has one.
    fn shm_region(&self, id: u8) -> Option<ShmRegion>;
}

/// One request and the room for its reply, lent for the time of a [`Channel::call`].
pub struct Message<'a> {
    /// Header, arguments and names, copied before they are sent.
    pub head: &'a [u8],
    /// What follows them: the data of a WRITE, the value of a SETXATTR.
    pub data: Source<'a>,
    /// Room for the reply's header and fixed part, copied out.
    pub reply_head: &'a mut [u8],
    /// Room for what follows: the data of a READ, entries of a directory.
    pub reply_data: Sink<'a>,
}

/// Bytes that the device is to read.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// None.
    Empty,
    /// In ordinary memory: mapped for the device or copied, as its DMA operations have it.
    Bytes(&'a [u8]),
    /// In memory that the device reaches: never copied. The range lies within the buffer.
    Buffer(&'a DmaBuffer, usize, usize),
}

impl Source<'_> {
    /// What it has, in bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Buffer(_, _, len_bytes) => *len_bytes,
        }
    }
}

/// Room that the device is to fill.
pub enum Sink<'a> {
    /// None.
    Empty,
    /// In ordinary memory: mapped for the device or copied, as its DMA operations have it.
    Bytes(&'a mut [u8]),
    /// In memory that the device reaches: never copied. Offset and length lie within the buffer.
    Buffer(&'a DmaBuffer, usize, usize),
}

impl Sink<'_> {
    /// What it takes, in bytes.
    pub fn len_bytes(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Bytes(bytes) => bytes.len(),
            Self::Buffer(_, _, len_bytes) => *len_bytes,
        }
    }
}

/// A request with buffers of its own.
pub struct OwnedMessage {
    /// Header, arguments and names.
    pub head: Vec<u8>,
    /// Data behind them.
    pub data: Option<(Arc<DmaBuffer>, Range<usize>)>,
    /// Room for the reply's header and fixed part, in bytes.
    pub reply_head_len: usize,
    /// Room for the data behind that.
    pub reply_data: Option<(Arc<DmaBuffer>, Range<usize>)>,
}

/// The reply to an [`OwnedMessage`].
pub struct OwnedReply {
    /// Header and fixed part, as long as the message asked for; what was not written is zero.
    pub head: Vec<u8>,
    /// Bytes that the device says it has written, of head and data together.
    pub written: usize,
}

/// A started message.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// Why a message got no reply.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ChannelError {
    /// The device broke the protocol; nothing more goes through this queue.
    #[error("the device broke the protocol: {0}")]
    Broken(&'static str),
    /// The device, or the process that plays it, is gone.
    #[error("the device is gone")]
    Gone,
    /// There is no memory that the device could reach.
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
