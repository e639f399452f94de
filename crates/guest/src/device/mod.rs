//! The virtio-fs device: brought up, found out about, and used as a [`Channel`].
//!
//! Source: virtio 1.3 §3.1 (initialization), §5.11.

mod bits;
mod bring_up;

use alloc::{boxed::Box, sync::Arc};

use thiserror::Error;
use transom_wire::config::QUEUE_FIRST_REQUEST;

use crate::{
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Ticket},
    dma::{DmaBuffer, DmaChoice, DmaCounts, DmaError, DmaOps},
    platform::Platform,
    queue::{Health, Queue, queue_of},
    transport::{ShmRegion, Transport, TransportError},
};

pub use crate::queue::QueueCounts;
pub use bits::{feature, status};

/// What a driver wishes of its device.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The longest ring, in descriptors; what the device allows and a power of two at most 1024 bound it too.
    pub queue_len_max: u16,
    /// Requests in flight on each request queue at most. Each takes 1 KiB and an indirect table.
    pub in_flight_max: u16,
    /// Request queues that are used at most; what the device has bounds it too.
    pub request_queues_max: u16,
    /// A waiter polls for so long at most, in nanoseconds, while replies usually come sooner; 0 for never.
    pub poll_max_ns: u32,
    /// So many threads poll one queue at the same time at most: fewer than there are processors.
    pub pollers_max: u32,
}

impl Default for Settings {
    /// A poll of 100 µs is what two wakes of a thread in a virtual machine may cost.
    fn default() -> Self {
        Self {
            queue_len_max: crate::ring::LEN_MAX,
            in_flight_max: 256,
            request_queues_max: 16,
            poll_max_ns: 100_000,
            pollers_max: 2,
        }
    }
}

/// Why a device was not brought up. It is reset then.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// It cannot be reached, or lacks what the driver needs.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// There is no memory that it could reach.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// It is no file system.
    #[error("a device of type {0} is not a file system, which is 26")]
    Type(u32),
    /// Its tag is empty, or holds a line feed.
    #[error("the tag of the device cannot be a name to mount by")]
    Tag,
}

/// A virtio-fs device that works, until it is dropped.
///
/// Dropping it resets the device; buffers of messages that were started and not finished are freed after that.
pub struct VirtioFs<P: Platform, T: Transport + 'static> {
    transport: Arc<T>,
    ops: Arc<dyn DmaOps>,
    health: Arc<Health<P>>,
    features: u64,
    tag: Box<[u8]>,
    data_len_max: usize,
    priority: Arc<Queue<P, T>>,
    requests: Box<[Arc<Queue<P, T>>]>,
}

impl<P: Platform, T: Transport + 'static> VirtioFs<P, T> {
    /// Brings the device up. Blocks while the device is reset.
    pub fn new(transport: T, platform: Arc<P>, dma: &DmaChoice, settings: Settings) -> Result<Self, DeviceError> {
        bring_up::bring_up(Arc::new(transport), platform, dma, settings)
    }

    /// The name that the device is mounted by: UTF-8 as the device says it, which nobody has checked.
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }

    /// The virtio features that were negotiated.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// What went through its DMA operations.
    pub fn dma_counts(&self) -> DmaCounts {
        self.ops.counts()
    }

    /// What happened on a queue of the device: 0 is the high-priority queue.
    pub fn queue_counts(&self, queue: u16) -> Option<QueueCounts> {
        self.any_queue(queue).map(|queue| queue.counts())
    }

    /// Completes what the device has used, for interrupt handlers; `queue` is the device's number, 0 for high priority.
    ///
    /// Needs a `RawMutex` that keeps interrupts off while it is held, and an
    /// [`Event::wake_all`](crate::platform::Event) that handlers may call. Waits for nothing: a device that broke the
    /// protocol is reset by the next thread that looks for a reply.
    pub fn interrupt(&self, queue: u16) {
        if let Some(queue) = self.any_queue(queue) {
            queue.interrupt();
        }
    }

    /// What the device is reached through.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    fn any_queue(&self, queue: u16) -> Option<&Queue<P, T>> {
        match usize::from(queue).checked_sub(QUEUE_FIRST_REQUEST) {
            None => Some(&self.priority),
            Some(request) => self.requests.get(request).map(|queue| &**queue),
        }
    }

    fn request_queue(&self, queue: u16) -> Result<&Queue<P, T>, ChannelError> {
        self.requests.get(usize::from(queue)).map(|queue| &**queue).ok_or(ChannelError::Broken("no such request queue"))
    }
}

impl<P: Platform, T: Transport + 'static> Channel for VirtioFs<P, T> {
    fn request_queues(&self) -> u16 {
        self.requests.len() as u16
    }

    fn data_len_max(&self) -> usize {
        self.data_len_max
    }

    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        self.request_queue(queue)?.call(message)
    }

    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError> {
        self.request_queue(queue)?.start(message).map(Ticket)
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        self.any_queue(queue_of(ticket.0)).ok_or(ChannelError::Broken("an unknown ticket"))?.finish(ticket.0)
    }

    fn is_finished(&self, ticket: &Ticket) -> bool {
        self.any_queue(queue_of(ticket.0)).is_none_or(|queue| queue.is_finished(ticket.0))
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.priority.post(message)
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        DmaBuffer::new(&self.ops, len_bytes)
    }

    fn keepable_bytes(&self) -> usize {
        self.ops.keepable_bytes()
    }

    fn shm_region(&self, id: u8) -> Option<ShmRegion> {
        self.transport.shm_region(id).ok().flatten()
    }
}

impl<P: Platform, T: Transport + 'static> Drop for VirtioFs<P, T> {
    fn drop(&mut self) {
        if !self.health.is_released() {
            self.health.fail(ChannelError::Gone);
        }
    }
}
