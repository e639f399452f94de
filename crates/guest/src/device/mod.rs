//! The virtio-fs device: initialized, queried, and used as a [`Channel`].
//!
//! Source: virtio 1.3 §3.1 (initialization), §5.11.

mod bits;
mod bring_up;
mod notifications;

use alloc::{boxed::Box, sync::Arc};
use core::{ptr::NonNull, task::Waker};

use thiserror::Error;
use transom_wire::config::QUEUE_HIPRIO;

use crate::{
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Ticket},
    dma::{DmaBuffer, DmaChoice, DmaCounts, DmaError, DmaOps},
    platform::Platform,
    queue::{Health, Queue, queue_of},
    transport::{ShmRegion, Transport, TransportError},
};

pub use crate::queue::QueueCounts;
pub use bits::{feature, status};
use notifications::NotificationQueue;

/// Settings of a device's driver.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Maximum length of a ring, in descriptors. The device's limit and 1024 also apply, and the length is a power of
    /// two.
    pub queue_len_max: u16,
    /// Maximum number of requests in flight on each request queue. Each takes 1 KiB and an indirect table.
    pub in_flight_max: u16,
    /// Maximum number of request queues to use, or `None` for the number of
    /// [processors](crate::platform::Platform::processors). The device's number is a limit too.
    pub request_queues_max: Option<u16>,
    /// Maximum time that a waiter polls, in nanoseconds, while replies usually come sooner; 0 disables polling.
    pub poll_max_ns: u32,
    /// Maximum number of threads that poll one queue at the same time: less than the number of processors.
    pub pollers_max: u32,
    /// Number of buffers for notifications of the device ([`Channel::notification`]), of about 1 KiB each, if it has a
    /// notification queue (VIRTIO_FS_F_NOTIFICATION). 0 does without. The length of the queue is a limit too.
    pub notification_buffers: u16,
}

impl Default for Settings {
    /// Polls for 100 µs, which is what two wake-ups of a thread in a virtual machine may cost.
    fn default() -> Self {
        Self {
            queue_len_max: crate::ring::LEN_MAX,
            in_flight_max: 256,
            request_queues_max: None,
            poll_max_ns: 100_000,
            pollers_max: 2,
            notification_buffers: 0,
        }
    }
}

/// Why a device could not be initialized. It has been reset.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// The device cannot be reached, or lacks what the driver needs.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No memory is available that the device can reach.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// The device is not a file system.
    #[error("a device of type {0} is not a file system, which is 26")]
    Type(u32),
    /// The device's tag is empty, or contains a line feed.
    #[error("the device's tag is not a valid name to mount by")]
    Tag,
}

/// A working virtio-fs device, until it is dropped.
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
    notifications: Option<NotificationQueue<P, T>>,
    /// The device's number of the first request queue.
    first_request: u16,
    requests: Box<[Arc<Queue<P, T>>]>,
}

impl<P: Platform, T: Transport + 'static> VirtioFs<P, T> {
    /// Initializes the device. Blocks while the device is reset.
    pub fn new(transport: T, platform: Arc<P>, dma: &DmaChoice, settings: Settings) -> Result<Self, DeviceError> {
        bring_up::bring_up(Arc::new(transport), platform, dma, settings)
    }

    /// Returns the name by which the device is mounted. The device says that it is UTF-8; nothing has checked it.
    pub fn tag(&self) -> &[u8] {
        &self.tag
    }

    /// Returns the virtio features that were negotiated.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Returns the counters of its DMA operations.
    pub fn dma_counts(&self) -> DmaCounts {
        self.ops.counts()
    }

    /// Returns the counters of a queue of the device: 0 is the high-priority queue. The notification queue has none.
    pub fn queue_counts(&self, queue: u16) -> Option<QueueCounts> {
        self.any_queue(queue).map(|queue| queue.counts())
    }

    /// Completes the requests that the device has used, for interrupt handlers; `queue` is the device's number, 0 for
    /// the high-priority queue.
    ///
    /// Needs a `RawMutex` that keeps interrupts off while it is held, and an
    /// [`Event::wake_all`](crate::platform::Event) that handlers may call. Does not block: a device that broke the
    /// protocol is reset by the next thread that checks for a reply.
    pub fn interrupt(&self, queue: u16) {
        if let Some(queue) = self.any_queue(queue) {
            queue.interrupt();
        }
    }

    /// Returns the transport to the device.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    fn any_queue(&self, queue: u16) -> Option<&Queue<P, T>> {
        if usize::from(queue) == QUEUE_HIPRIO {
            return Some(&self.priority);
        }
        let request = queue.checked_sub(self.first_request)?;
        self.requests.get(usize::from(request)).map(|queue| &**queue)
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

    fn in_place_len(&self, pieces: &mut dyn Iterator<Item = (NonNull<u8>, usize)>) -> usize {
        let descriptors = self.requests.iter().map(|queue| queue.pieces_max()).min().unwrap_or(0);
        in_place_len(&*self.ops, descriptors, self.data_len_max, pieces)
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

    fn watch(&self, ticket: &Ticket, waker: &Waker) -> bool {
        self.any_queue(queue_of(ticket.0)).is_none_or(|queue| queue.watch(ticket.0, waker))
    }

    fn drive(&self, queue: u16, is_over: &mut dyn FnMut() -> bool) {
        if let Ok(queue) = self.request_queue(queue) {
            queue.drive(is_over);
        }
    }

    fn abandon(&self, ticket: Ticket) {
        if let Some(queue) = self.any_queue(queue_of(ticket.0)) {
            queue.abandon(ticket.0);
        }
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.priority.post(message)
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        self.requests.iter().for_each(|queue| queue.free_abandoned());
        DmaBuffer::for_data(&self.ops, len_bytes)
    }

    fn keepable_bytes(&self) -> usize {
        self.ops.keepable_bytes()
    }

    fn shm_region(&self, id: u8) -> Option<ShmRegion> {
        self.transport.shm_region(id).ok().flatten()
    }

    fn notification_len_max(&self) -> Option<usize> {
        self.notifications.as_ref().map(NotificationQueue::buffer_len)
    }

    fn notification(&self, to: &mut [u8], deadline_ns: Option<u64>) -> Result<Option<usize>, ChannelError> {
        let queue = self.notifications.as_ref().ok_or(ChannelError::Broken("it has no notification queue"))?;
        queue.take(to, deadline_ns)
    }

    fn is_gone(&self) -> bool {
        !self.health.is_working() || self.transport.is_gone()
    }
}

impl<P: Platform, T: Transport + 'static> Drop for VirtioFs<P, T> {
    fn drop(&mut self) {
        if !self.health.is_released() {
            self.health.fail(ChannelError::Gone);
        }
    }
}

/// Returns how many bytes of `pieces` fit into `descriptors` and `len_max` bytes, up to the first one that has to be
/// copied. Pieces are cut as [`Lent`](crate::dma) cuts them.
fn in_place_len(
    ops: &dyn DmaOps,
    mut descriptors: usize,
    len_max: usize,
    pieces: &mut dyn Iterator<Item = (NonNull<u8>, usize)>,
) -> usize {
    let (piece_max, boundary) = (ops.mapping_len_max().max(1), ops.boundary().unwrap_or(usize::MAX).max(1));
    let mut total = 0;
    for (start, len) in pieces {
        if !ops.is_in_place(start, len) {
            break;
        }
        let mut done = 0;
        while done < len {
            if descriptors == 0 || total == len_max {
                return total;
            }
            let to_boundary = boundary - start.addr().get().wrapping_add(done) % boundary;
            let count = (len - done).min(piece_max).min(to_boundary).min(len_max - total);
            descriptors -= 1;
            total += count;
            done += count;
        }
    }
    total
}
