//! The notification queue (virtio 1.3 §5.11.2): buffers that the device fills on its own account.
//!
//! The buffers are the ring's: each is provided again as soon as its notification is taken, so nothing is queued here.
//! Lock: the ring's, held to pop and to provide, never while a thread waits.

use alloc::sync::{Arc, Weak};

use transom_wire::header::OutHeader;

use crate::{
    channel::ChannelError,
    dma::{DmaBuffer, DmaError, DmaOps},
    platform::Platform,
    queue::{Health, OfDevice},
    ring::{Ring, RingSettings, Segment},
    sync::{Mutex, rank},
    transport::{QueueAddresses, Transport},
};

/// The most that a device may ask for a buffer: 64 KiB.
pub(super) const BUFFER_LEN_MAX: usize = 64 << 10;

/// Who waits looks again after this long even without a notification: another queue may have ended the device.
const LOOK_AGAIN_NS: u64 = 200_000_000;

/// The driver's side of the queue.
pub(super) struct NotificationQueue<P: Platform, T: Transport> {
    platform: Arc<P>,
    transport: Arc<T>,
    health: Arc<Health<P>>,
    ring: Arc<NotificationRing<P>>,
    buffers: DmaBuffer,
    buffer_len: usize,
    count: u16,
}

struct NotificationRing<P: Platform>(Mutex<P, { rank::QUEUE }, Ring>);

impl<P: Platform, T: Transport> NotificationQueue<P, T> {
    /// Creates a queue, without buffers, of which the device does not know yet. `buffer_len` is what the device asks
    /// for.
    ///
    /// # Errors
    /// Those of [`DmaOps::allocate`].
    pub(super) fn new(
        settings: RingSettings,
        buffer_len: usize,
        (platform, transport, health): (Arc<P>, Arc<T>, Arc<Health<P>>),
        ops: &Arc<dyn DmaOps>,
    ) -> Result<Self, DmaError> {
        let count = settings.chains_max;
        // A device that asks for less than any notification has says nothing.
        let buffer_len = buffer_len.max(size_of::<OutHeader>()).next_multiple_of(8);
        let buffers = DmaBuffer::new(ops, usize::from(count) * buffer_len)?;
        let ring = Arc::new(NotificationRing(Mutex::new(Ring::new(ops, settings)?)));
        let watched: Weak<NotificationRing<P>> = Arc::downgrade(&ring);
        health.watch(watched);
        Ok(Self { platform, transport, health, ring, buffers, buffer_len, count })
    }

    pub(super) fn addresses(&self) -> QueueAddresses {
        self.ring.0.lock().addresses()
    }

    pub(super) fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// Provides the device with all buffers, once it works. One that has failed is found so by whoever uses it next.
    pub(super) fn provide(&self) {
        if (0..self.count).all(|number| self.add(&mut self.ring.0.lock(), number).is_ok()) {
            self.tell_device();
        }
    }

    /// Takes the next notification: see [`Channel::notification`](crate::channel::Channel::notification).
    pub(super) fn take(&self, to: &mut [u8], deadline_ns: Option<u64>) -> Result<Option<usize>, ChannelError> {
        rank::may_wait::<P>();
        let mut was_idle = false;
        loop {
            // Before the look: what the device tells after it ends the wait.
            let seen = self.transport.notifications(index());
            if let Some(len) = self.try_take(to)? {
                return Ok(Some(len));
            }
            let now_ns = self.platform.now_ns();
            if deadline_ns.is_some_and(|deadline_ns| now_ns >= deadline_ns) {
                return Ok(None);
            }
            if self.ring.0.lock().arm() {
                continue;
            }
            // A wait that ended with nothing may be one that does not block.
            if was_idle {
                self.platform.yield_now();
            }
            let again_ns = now_ns.saturating_add(LOOK_AGAIN_NS).min(deadline_ns.unwrap_or(u64::MAX));
            if let Err(error) = self.transport.wait(index(), seen, Some(again_ns)) {
                self.health.fail(error.into());
            }
            was_idle = true;
        }
    }

    fn try_take(&self, to: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        self.health.check()?;
        let mut ring = self.ring.0.lock();
        let used = match ring.pop() {
            Ok(Some(used)) => used,
            Ok(None) => return Ok(None),
            Err(broken) => {
                drop(ring);
                self.health.fail(ChannelError::Broken(broken.0));
                return Err(ChannelError::Broken(broken.0));
            }
        };
        // The ring has checked that the device wrote no more than a buffer holds.
        let len = (used.written_bytes as usize).min(to.len());
        self.buffers.read(usize::from(used.cookie) * self.buffer_len, &mut to[..len]);
        self.add(&mut ring, used.cookie)?;
        drop(ring);
        self.tell_device();
        Ok(Some(len))
    }

    /// Provides buffer `number`, which the device does not have. Nothing is added once the device is being reset: the
    /// ring's lock is held, see [`OfDevice::settle`].
    fn add(&self, ring: &mut Ring, number: u16) -> Result<(), ChannelError> {
        self.health.check()?;
        let address = self.buffers.address() + u64::from(number) * self.buffer_len as u64;
        let segment = Segment { address, len_bytes: self.buffer_len as u32 };
        ring.add(&[], &[segment], number).expect("there are no more buffers than the ring has room for");
        Ok(())
    }

    fn tell_device(&self) {
        let is_wanted = self.ring.0.lock().needs_notify();
        if is_wanted {
            self.transport.notify(index());
        }
    }
}

fn index() -> u16 {
    transom_wire::config::QUEUE_NOTIFICATION as u16
}

impl<P: Platform> OfDevice for NotificationRing<P> {
    fn settle(&self) {
        drop(self.0.lock());
    }

    /// Who waits looks again on its own.
    fn wake_everyone(&self) {}
}
