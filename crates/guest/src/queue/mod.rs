//! One virtqueue used by many threads at once.
//!
//! A caller takes a slot, writes its head into the slot's own memory, makes its data reachable, and puts the chain into
//! the ring; the device uses chains in any order, and who reaps marks their slots. Locks: the ring's, held only to add
//! and to pop; `tickets`; `sleepers`. None of them is held with another, while anybody waits, or while the device is
//! called. A platform whose interrupt handler calls [`Queue::interrupt`] needs a `RawMutex` that keeps interrupts off.

mod counters;
mod harvest;
mod health;
#[cfg(all(test, feature = "loom"))]
pub(crate) mod loom_test;
mod parts;
mod slots;
#[cfg(all(test, not(feature = "loom")))]
mod slots_test;
mod tickets;
mod wait;

use alloc::sync::{Arc, Weak};
use core::sync::atomic::AtomicU16;

use transom_polling::ReplyPoller;

pub use counters::QueueCounts;
pub(crate) use health::{Health, OfDevice};
pub(crate) use tickets::queue_of;

use crate::{
    channel::{ChannelError, Message},
    dma::{DmaBuffer, DmaError, DmaOps},
    platform::{Event as _, Platform},
    ring::{DESCRIPTOR_LEN, Ring, RingMemory, RingSettings, Segment},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
        rank,
    },
    transport::{QueueAddresses, Transport},
};
use counters::Counters;
use parts::{Data, Heads, SLOT_LEN, Segments};
use slots::Slots;
use tickets::Tickets;
use wait::{Seat, Sleepers};

/// Completions that are reaped under one hold of the lock; their waiters are woken after it.
const REAP_BATCH: usize = 16;

/// What a queue is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueSettings {
    pub(crate) index: u16,
    pub(crate) ring: RingSettings,
    /// Bytes of data that one message carries, in each direction.
    pub(crate) data_len_max: usize,
    pub(crate) poll_max_ns: u32,
    pub(crate) pollers_max: u32,
}

/// A queue and everything that waits on it.
pub(crate) struct Queue<P: Platform, T: Transport> {
    index: u16,
    data_len_max: usize,
    /// The longest chain for which the ring has memory.
    segments_max: usize,
    /// The longest chain, with memory of its own.
    segments_long_max: usize,
    platform: Arc<P>,
    transport: Arc<T>,
    ops: Arc<dyn DmaOps>,
    health: Arc<Health<P>>,
    ring: Mutex<P, { rank::QUEUE }, Ring>,
    /// The ring's memory, for a look without its lock.
    memory: Arc<RingMemory>,
    /// The used index up to which completions were reaped: a hint.
    reaped: AtomicU16,
    slots: Slots<P>,
    /// The heads of all slots.
    messages: DmaBuffer,
    /// Woken when a slot may have become free.
    room: P::Event,
    tickets: Mutex<P, { rank::QUEUE }, Tickets>,
    /// Slots of started messages.
    started: AtomicU32,
    /// Those of them whose replies have come and were not taken.
    unclaimed: AtomicU32,
    /// Those of them that have a waker, for which the ring requests interrupts. Changed under the lock of `tickets`.
    watched: AtomicU32,
    /// Those of them whose replies nobody wants and that own buffers. Changed under the lock of `tickets`.
    abandoned: AtomicU32,
    sleepers: Mutex<P, { rank::QUEUE }, Sleepers>,
    /// A copy of the sleepers' own mark, for a look without their lock.
    is_led: AtomicBool,
    poller: ReplyPoller,
    counters: Counters,
}

impl<P: Platform, T: Transport + 'static> Queue<P, T> {
    /// A queue whose device does not know of it yet.
    ///
    /// Errors: what [`DmaOps::allocate`] says.
    pub(crate) fn new(
        settings: QueueSettings,
        platform: Arc<P>,
        transport: Arc<T>,
        ops: Arc<dyn DmaOps>,
        health: Arc<Health<P>>,
    ) -> Result<Arc<Self>, DmaError> {
        let QueueSettings { index, ring, data_len_max, poll_max_ns, pollers_max } = settings;
        let slots = ring.chains_max;
        let messages = DmaBuffer::new(&ops, usize::from(slots) * SLOT_LEN)?;
        let segments_max = usize::from(ring.segments_max);
        let segments_long_max = if ring.is_indirect { usize::from(ring.len) } else { segments_max };
        let ring = Ring::new(&ops, ring)?;
        let memory = Arc::clone(ring.memory());
        Ok(Arc::new_cyclic(|queue: &Weak<Self>| {
            health.watch(queue.clone());
            Self {
                index,
                data_len_max,
                segments_max,
                segments_long_max,
                platform,
                transport,
                ops,
                health,
                ring: Mutex::new(ring),
                memory,
                reaped: AtomicU16::new(0),
                slots: Slots::new(slots),
                messages,
                room: P::Event::default(),
                tickets: Mutex::new(Tickets::new(slots)),
                started: AtomicU32::new(0),
                unclaimed: AtomicU32::new(0),
                watched: AtomicU32::new(0),
                abandoned: AtomicU32::new(0),
                sleepers: Mutex::new(Sleepers::default()),
                is_led: AtomicBool::new(false),
                poller: ReplyPoller::new(poll_max_ns, pollers_max),
                counters: Counters::default(),
            }
        }))
    }

    /// For [`Transport::start_queue`].
    pub(crate) fn addresses(&self) -> QueueAddresses {
        self.ring.lock().addresses()
    }

    pub(crate) fn counts(&self) -> QueueCounts {
        self.counters.read(self.poller.average_ns())
    }

    /// Memory that the device reaches without a copy.
    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        DmaBuffer::new(&self.ops, len_bytes)
    }

    /// Sends a message and blocks until its reply has arrived; returns the number of bytes that the device says it
    /// wrote.
    pub(crate) fn call(&self, message: Message<'_>) -> Result<usize, ChannelError> {
        let Message { head, data, reply_head, reply_data } = message;
        self.check_lengths(head.len(), data.len_bytes(), reply_head.len(), reply_data.len_bytes())?;
        let begin_ns = self.platform.now_ns();
        let claim = self.acquire()?;
        let heads = Heads::new(&self.messages, claim.slot, head, reply_head.len(), |len| self.buffer(len))?;
        let (data, room) = (Data::of_source(&*self.ops, data)?, Data::of_sink(&*self.ops, reply_data)?);
        let (mut readable, mut writable) = (Segments::new(), Segments::new());
        heads.push_head(&mut readable);
        data.push_to(&mut readable)?;
        heads.push_reply(&mut writable);
        room.push_to(&mut writable)?;
        // Lives until the device has used the request, or was reset.
        let table = self.long_table(readable.as_slice().len() + writable.as_slice().len())?;
        self.submit(&claim, table.as_ref(), readable.as_slice(), writable.as_slice())?;

        let slot = self.slots.get(claim.slot).ok_or(ChannelError::Gone)?;
        self.wait_until(Seat::Slot(claim.slot), &mut || slot.is_done());
        if !slot.is_done() {
            // The device is reset. What it had of ours goes back to its owners; the slot is of no more use.
            claim.keep();
            return Err(self.health.cause());
        }
        let written = slot.written_bytes();
        heads.read_reply(reply_head, written);
        room.end(written.saturating_sub(reply_head.len()));
        self.poller.record_round_trip(self.platform.now_ns().saturating_sub(begin_ns));
        Ok(written)
    }

    /// Returns how many pieces of data one message carries.
    pub(crate) fn pieces_max(&self) -> usize {
        // Two are for the heads.
        self.segments_long_max.saturating_sub(2)
    }

    /// Returns memory for the table of a chain that is too long for the ring's own tables.
    fn long_table(&self, segments: usize) -> Result<Option<DmaBuffer>, DmaError> {
        let is_long = segments > self.segments_max && segments <= self.segments_long_max;
        is_long.then(|| self.buffer(segments * DESCRIPTOR_LEN)).transpose()
    }

    fn check_lengths(&self, head: usize, data: usize, reply: usize, room: usize) -> Result<(), ChannelError> {
        let len_max_bytes = self.data_len_max;
        match [head, data, reply, room].into_iter().find(|&len_bytes| len_bytes > len_max_bytes) {
            Some(len_bytes) => Err(ChannelError::TooLong { len_bytes, len_max_bytes }),
            None => Ok(()),
        }
    }

    /// Takes a slot; blocks until one is free.
    fn acquire(&self) -> Result<Claim<'_, P, T>, ChannelError> {
        self.free_abandoned();
        loop {
            self.health.check()?;
            if let Some(slot) = self.slots.take() {
                return Ok(Claim { queue: self, slot });
            }
            self.reap(None);
            self.harvest();
            if self.slots.has_free() {
                continue;
            }
            self.counters.was_full();
            self.wait_until(Seat::Room, &mut || self.slots.has_free() || self.unclaimed.load(Ordering::Acquire) != 0);
        }
    }

    fn release(&self, slot: u16) {
        self.slots.release(slot);
        self.room.wake_all();
    }

    /// Puts a chain into the ring and tells the device if it wants to be told. On an error the device has not seen it.
    fn submit(
        &self,
        claim: &Claim<'_, P, T>,
        table: Option<&DmaBuffer>,
        readable: &[Segment],
        writable: &[Segment],
    ) -> Result<(), ChannelError> {
        let count = readable.len() + writable.len();
        let len_max_bytes = if table.is_some() { self.segments_long_max } else { self.segments_max };
        if count == 0 || count > len_max_bytes {
            return Err(ChannelError::TooLong { len_bytes: count, len_max_bytes });
        }
        let slot = self.slots.get(claim.slot).ok_or(ChannelError::Gone)?;
        let is_wanted = {
            let mut ring = self.ring.lock();
            // Under the lock: nothing is added once the device is being reset, see `settle`.
            self.health.check()?;
            slot.depart();
            let added = match table {
                Some(table) => ring.add_long(table, readable, writable, claim.slot),
                None => ring.add(readable, writable, claim.slot),
            };
            added.expect("a slot stands for a chain that the ring has room for");
            ring.needs_notify()
        };
        self.counters.sent(is_wanted);
        if is_wanted {
            self.transport.notify(self.index);
        }
        Ok(())
    }

    /// Completes what the device has used, for interrupt handlers. What is wrong with the device is left to a thread,
    /// which finds it when it looks: ending the device means to wait, and the thread that was interrupted may be doing
    /// just that.
    pub(crate) fn interrupt(&self) {
        let _ = self.reap_all(None);
    }

    /// Receives replies to started messages until `is_over`, or until the device was released.
    pub(crate) fn drive(&self, is_over: &mut dyn FnMut() -> bool) {
        self.wait_until(Seat::Driver, is_over);
    }

    /// Whether the device has used something that nobody has reaped; a guess, without a lock.
    fn has_used(&self) -> bool {
        self.memory.device_used_index() != self.reaped.load(Ordering::Relaxed)
    }

    /// As [`Self::reap`], unless somebody else is at the ring.
    fn try_reap(&self, own: Seat) {
        if let Some(ring) = self.ring.try_lock() {
            drop(ring);
            self.reap(Some(own));
        }
    }

    /// As [`Self::reap_all`]. A device that broke the protocol is ended.
    fn reap(&self, own: Option<Seat>) {
        if let Err(error) = self.reap_all(own) {
            self.health.fail(error);
        }
    }

    /// Marks everything that the device has used as done, and wakes who waits for it, but for the caller's `own` slot.
    ///
    /// Errors: the device broke the protocol, for good.
    fn reap_all(&self, own: Option<Seat>) -> Result<(), ChannelError> {
        loop {
            let mut done = [0; REAP_BATCH];
            let (count, outcome) = self.reap_some(&mut done);
            let mut has_unclaimed = false;
            for &slot in &done[..count] {
                if let Some(of) = self.slots.get(slot) {
                    if of.ticket() != 0 {
                        has_unclaimed = true;
                        self.wake_watcher(slot);
                    }
                    // Nobody else waits for a slot that its waiter holds.
                    if own != Some(Seat::Slot(slot)) {
                        of.event.wake_all();
                    }
                }
            }
            if has_unclaimed {
                self.room.wake_all();
            }
            outcome?;
            if count == REAP_BATCH {
                continue;
            }
            // Wakers are called by whoever reaps next, which without a leader is the handler of an interrupt. A waker
            // that is stored after this look comes with its own request for an interrupt.
            if self.watched.load(Ordering::Acquire) == 0 || !self.ring.lock().arm() {
                return Ok(());
            }
        }
    }

    /// Slots are marked under the lock, so that a leader who arms the ring after somebody popped its completion sees
    /// it.
    fn reap_some(&self, done: &mut [u16; REAP_BATCH]) -> (usize, Result<(), ChannelError>) {
        let mut ring = self.ring.lock();
        let mut count = 0;
        let mut outcome = Ok(());
        for place in done {
            let used = match ring.pop() {
                Ok(Some(used)) => used,
                Ok(None) => break,
                Err(broken) => {
                    outcome = Err(ChannelError::Broken(broken.0));
                    break;
                }
            };
            if let Some(slot) = self.slots.get(used.cookie) {
                if slot.ticket() != 0 {
                    self.unclaimed.fetch_add(1, Ordering::AcqRel);
                }
                slot.arrive(used.written_bytes);
            }
            *place = used.cookie;
            count += 1;
        }
        self.reaped.store(ring.used_index(), Ordering::Relaxed);
        (count, outcome)
    }
}

impl<P: Platform, T: Transport + 'static> health::OfDevice for Queue<P, T> {
    fn settle(&self) {
        drop(self.ring.lock());
    }

    fn wake_everyone(&self) {
        let mut slot = 0;
        while let Some(of) = self.slots.get(slot) {
            of.event.wake_all();
            self.wake_watcher(slot);
            slot += 1;
        }
        self.room.wake_all();
    }
}

/// A slot, given back when this is dropped.
struct Claim<'q, P: Platform, T: Transport + 'static> {
    queue: &'q Queue<P, T>,
    slot: u16,
}

impl<P: Platform, T: Transport + 'static> Claim<'_, P, T> {
    /// Leaves the slot to whoever concludes the message.
    fn keep(self) {
        core::mem::forget(self);
    }
}

impl<P: Platform, T: Transport + 'static> Drop for Claim<'_, P, T> {
    fn drop(&mut self) {
        self.queue.release(self.slot);
    }
}
