//! Messages that were started and not finished: their buffers, and replies that came before [`Queue::finish`].
//!
//! When no slot is free, replies that have come are moved out of their slots, so a caller that starts many messages
//! without finishing any waits only for the device, and never for itself. A message may have a waker, which whoever
//! receives the reply calls.

use alloc::{sync::Arc, vec::Vec};
use core::{mem, ops::Range, task::Waker};

use super::{
    Queue,
    parts::{Heads, KeptHeads, Segments, check_buffer},
    wait::Seat,
};
use crate::{
    channel::{ChannelError, OwnedMessage, OwnedReply},
    dma::{Direction, DmaBuffer, DmaError},
    platform::{Event as _, Platform},
    ring::LEN_MAX,
    sync::atomic::Ordering,
    transport::Transport,
};

/// A ticket consists of a count, a 16-bit queue and a 10-bit slot.
const SLOT_BITS: u32 = 10;
const QUEUE_BITS: u32 = 16;
const _: () = assert!(LEN_MAX <= 1 << SLOT_BITS);

const UNKNOWN: ChannelError = ChannelError::Broken("an unknown ticket");

/// Protected by `Queue::tickets`.
pub(super) struct Tickets {
    pub(super) by_slot: Vec<Option<Owned>>,
    /// Replies whose slots are in use again; `harvest` makes room for them.
    pub(super) early: Vec<(u64, OwnedReply)>,
    next: u64,
}

/// A message in flight that owns its buffers.
pub(super) struct Owned {
    pub(super) ticket: u64,
    /// No caller asks for the reply.
    pub(super) is_unwanted: bool,
    /// Called once the reply has come, or never will.
    waker: Option<Waker>,
    heads: KeptHeads,
    reply_head: Vec<u8>,
    /// Held only to keep the memory alive.
    _data: Option<(Arc<DmaBuffer>, Range<usize>)>,
    /// Where the device writes.
    reply_data: Option<(Arc<DmaBuffer>, Range<usize>)>,
}

impl Owned {
    fn has_buffers(&self) -> bool {
        self._data.is_some() || self.reply_data.is_some() || self.heads.is_long()
    }

    /// Returns whether it keeps buffers alive only because the device may access them.
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_unwanted && self.has_buffers()
    }
}

impl Tickets {
    pub(super) fn new(slots: u16) -> Self {
        Self { by_slot: (0..slots).map(|_| None).collect(), early: Vec::new(), next: 1 }
    }

    /// Returns the entry of the message with `ticket`, while it has its slot.
    fn place(&mut self, ticket: u64) -> Option<&mut Option<Owned>> {
        let place = self.by_slot.get_mut(usize::from(slot_of(ticket)))?;
        place.as_ref().is_some_and(|owned| owned.ticket == ticket).then_some(place)
    }

    /// Returns whether the early replies have room for one more.
    pub(super) fn has_room(&self) -> bool {
        self.early.len() < self.early.capacity()
    }

    fn name(&mut self, queue: u16, slot: u16) -> u64 {
        let count = self.next;
        self.next += 1;
        count << (QUEUE_BITS + SLOT_BITS) | u64::from(queue) << SLOT_BITS | u64::from(slot)
    }
}

/// Returns the queue of a ticket.
pub(crate) fn queue_of(ticket: u64) -> u16 {
    (ticket >> SLOT_BITS) as u16
}

fn slot_of(ticket: u64) -> u16 {
    (ticket & ((1 << SLOT_BITS) - 1)) as u16
}

impl<P: Platform, T: Transport + 'static> Queue<P, T> {
    /// Sends `message` and keeps its buffers; returns a ticket for the reply. Blocks only while the queue is full of
    /// messages that the device has not used.
    pub(crate) fn start(&self, message: OwnedMessage) -> Result<u64, ChannelError> {
        let OwnedMessage { head, data, reply_head_len, reply_data } = message;
        self.begin(&head, reply_head_len, [data, reply_data], false)
    }

    /// Sends `message`, whose reply no caller asks for.
    pub(crate) fn post(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.begin(message, 0, [None, None], true).map(drop)
    }

    /// Sends `head` and the data that the device reads and writes, and keeps what the device may access.
    fn begin(
        &self,
        head: &[u8],
        reply_head_len: usize,
        [data, reply_data]: [Option<(Arc<DmaBuffer>, Range<usize>)>; 2],
        is_unwanted: bool,
    ) -> Result<u64, ChannelError> {
        let range = |data: &Option<(Arc<DmaBuffer>, Range<usize>)>| {
            let Some((buffer, range)) = data else { return Ok((0, 0)) };
            check_buffer(&*self.ops, buffer, range.start, range.len())?;
            Ok::<_, ChannelError>((buffer.address() + range.start as u64, range.len()))
        };
        let ((data_address, data_len), (room_address, room_len)) = (range(&data)?, range(&reply_data)?);
        self.check_lengths(head.len(), data_len, reply_head_len, room_len)?;

        let reply_head = zeros(reply_head_len)?;
        let claim = self.acquire()?;
        let heads = Heads::new(&self.messages, claim.slot, head, reply_head_len, |len| self.buffer(len))?;
        for (data, direction) in [(&data, Direction::ToDevice), (&reply_data, Direction::FromDevice)] {
            if let Some((buffer, range)) = data {
                buffer.sync_for_device(range.start, range.len(), direction);
            }
        }
        let (mut readable, mut writable) = (Segments::new(), Segments::new());
        heads.push_head(&mut readable);
        readable.push(data_address, data_len);
        heads.push_reply(&mut writable);
        writable.push(room_address, room_len);

        let ticket = {
            let mut tickets = self.tickets.lock();
            let ticket = tickets.name(self.index, claim.slot);
            let heads = heads.detach();
            let owned = Owned { ticket, is_unwanted, waker: None, heads, reply_head, _data: data, reply_data };
            if let Some(place) = tickets.by_slot.get_mut(usize::from(claim.slot)) {
                if owned.is_abandoned() {
                    self.abandoned.fetch_add(1, Ordering::AcqRel);
                }
                *place = Some(owned);
            }
            ticket
        };
        if let Some(slot) = self.slots.get(claim.slot) {
            slot.set_ticket(ticket);
        }
        if let Err(error) = self.submit(&claim, None, readable.as_slice(), writable.as_slice()) {
            // It was never sent: its buffers are dropped here.
            self.forget(ticket);
            return Err(error);
        }
        claim.keep();
        self.started.fetch_add(1, Ordering::AcqRel);
        if self.has_only_started() {
            // Only threads that wait for a slot may be left to become the leader.
            self.room.wake_all();
        }
        Ok(ticket)
    }

    /// Blocks until the reply has come.
    pub(crate) fn finish(&self, ticket: u64) -> Result<OwnedReply, ChannelError> {
        let at = slot_of(ticket);
        let slot = self.slots.get(at).ok_or(UNKNOWN)?;
        loop {
            if let Some(reply) = self.take_reply(ticket)? {
                return Ok(reply);
            }
            if self.health.is_released() && !slot.is_done() {
                self.forget(ticket);
                return Err(self.health.cause());
            }
            self.wait_until(Seat::Started(at), &mut || slot.is_done() || slot.ticket() != ticket);
        }
    }

    /// Returns whether [`Self::finish`] would return without blocking. Reaps replies that have come, so calling it
    /// repeatedly suffices.
    pub(crate) fn is_finished(&self, ticket: u64) -> bool {
        if self.has_used() {
            self.reap(None);
        }
        let is_pending = self.slots.get(slot_of(ticket)).is_some_and(|slot| slot.ticket() == ticket && !slot.is_done());
        !is_pending || self.health.is_released()
    }

    /// Calls `waker` once the reply has come, or never will; a message has one waker, the last. Returns whether that is
    /// so already.
    pub(crate) fn watch(&self, ticket: u64, waker: &Waker) -> bool {
        let waker = waker.clone();
        let replaced = {
            let mut tickets = self.tickets.lock();
            let Some(Some(owned)) = tickets.place(ticket) else { return true };
            let replaced = owned.waker.replace(waker);
            if replaced.is_none() {
                self.watched.fetch_add(1, Ordering::AcqRel);
            }
            replaced
        };
        drop(replaced);
        // There may be no leader who requests interrupts.
        let has_come = self.ring.lock().arm();
        if has_come {
            self.reap(None);
        }
        // Whoever receives the reply after this check finds the waker: it marks the slot first.
        self.is_finished(ticket)
    }

    /// Wakes whoever watches the message in a slot, of which the reply has come.
    pub(super) fn wake_watcher(&self, slot: u16) {
        let waker = {
            let mut tickets = self.tickets.lock();
            let owned = tickets.by_slot.get_mut(usize::from(slot)).and_then(Option::as_mut);
            owned.and_then(|owned| self.take_waker(owned))
        };
        // Another message may have taken the slot meanwhile: then its task is woken too early, and watches again.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Leaves the reply to a message to nobody. Its buffers are dropped once the device has used it: here if it has,
    /// otherwise by the next caller that needs a slot or a buffer. Until then its slot stays taken, unless no other is
    /// free.
    pub(crate) fn abandon(&self, ticket: u64) {
        let at = slot_of(ticket);
        let is_released = self.health.is_released();
        let mut tickets = self.tickets.lock();
        let Some(place) = tickets.place(ticket) else {
            let early = tickets.early.iter().position(|(early, _)| *early == ticket);
            let reply = early.map(|place| tickets.early.swap_remove(place));
            drop(tickets);
            drop(reply);
            return;
        };
        if self.slots.get(at).is_some_and(|slot| slot.is_done()) {
            let owned = self.take_owned(place);
            self.claim();
            drop(tickets);
            drop(owned);
            self.release(at);
        } else if is_released {
            // The device is reset, and its slots are of no more use.
            let owned = self.take_owned(place);
            drop(tickets);
            drop(owned);
        } else if let Some(owned) = place {
            let waker = self.take_waker(owned);
            if !owned.is_unwanted {
                owned.is_unwanted = true;
                if owned.has_buffers() {
                    self.abandoned.fetch_add(1, Ordering::AcqRel);
                }
            }
            drop(tickets);
            drop(waker);
        }
    }

    /// Drops the buffers of messages that the device has used and whose replies nobody wants. Not for interrupt
    /// handlers.
    pub(crate) fn free_abandoned(&self) {
        if self.abandoned.load(Ordering::Acquire) == 0 {
            return;
        }
        if self.has_used() {
            // A device that broke the protocol is left to a caller that may wait.
            let _ = self.reap_all(None);
        }
        while self.abandoned.load(Ordering::Acquire) != 0
            && self.unclaimed.load(Ordering::Acquire) != 0
            && self.harvest_one(Owned::is_abandoned)
        {}
    }

    /// Returns the reply, if it has come. The ticket of a message whose reply nobody wants is unknown to callers.
    fn take_reply(&self, ticket: u64) -> Result<Option<OwnedReply>, ChannelError> {
        let at = slot_of(ticket);
        let mut tickets = self.tickets.lock();
        if let Some(place) = tickets.place(ticket) {
            if place.as_ref().is_some_and(|owned| owned.is_unwanted) {
                return Err(UNKNOWN);
            }
            if !self.slots.get(at).is_some_and(|slot| slot.is_done()) {
                return Ok(None);
            }
            let owned = self.take_owned(place);
            self.claim();
            drop(tickets);
            let reply = owned.map(|mut owned| self.read_reply(at, &mut owned));
            self.release(at);
            return Ok(reply);
        }
        match tickets.early.iter().position(|(early, _)| *early == ticket) {
            Some(place) => Ok(Some(tickets.early.swap_remove(place).1)),
            None => Err(UNKNOWN),
        }
    }

    /// Drops the buffers of a message that the device cannot access.
    fn forget(&self, ticket: u64) {
        let owned = self.tickets.lock().place(ticket).and_then(|place| self.take_owned(place));
        drop(owned);
    }

    /// Takes a message that the device cannot access out of its place; `tickets` is locked.
    pub(super) fn take_owned(&self, place: &mut Option<Owned>) -> Option<Owned> {
        let owned = place.take()?;
        if owned.is_abandoned() {
            self.abandoned.fetch_sub(1, Ordering::AcqRel);
        }
        if owned.waker.is_some() {
            self.watched.fetch_sub(1, Ordering::AcqRel);
        }
        Some(owned)
    }

    /// Takes the waker of a message; `tickets` is locked.
    pub(super) fn take_waker(&self, owned: &mut Owned) -> Option<Waker> {
        let waker = owned.waker.take()?;
        self.watched.fetch_sub(1, Ordering::AcqRel);
        Some(waker)
    }

    /// Takes the reply out of a message. What else the message owns stays there, since the caller may hold `tickets`,
    /// under which nothing is freed.
    pub(super) fn read_reply(&self, at: u16, owned: &mut Owned) -> OwnedReply {
        let mut head = mem::take(&mut owned.reply_head);
        let written = self.slots.get(at).map_or(0, |slot| slot.written_bytes());
        owned.heads.read_reply(&self.messages, &mut head, written);
        if let Some((buffer, range)) = &owned.reply_data {
            buffer.sync_for_cpu(range.start, range.len().min(written.saturating_sub(head.len())));
        }
        OwnedReply { head, written }
    }

    /// Counts a message as claimed because its reply has come. `tickets` is locked, so the count agrees with the
    /// messages.
    ///
    /// In this order: a thread that sees that nothing is left to claim also sees that a slot is about to be free.
    pub(super) fn claim(&self) {
        self.started.fetch_sub(1, Ordering::AcqRel);
        self.unclaimed.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether no slot is free or used by a call.
    pub(super) fn has_only_started(&self) -> bool {
        self.started.load(Ordering::Acquire) == self.slots.count()
    }
}

/// Returns room for the head of a reply.
fn zeros(len_bytes: usize) -> Result<Vec<u8>, DmaError> {
    let mut bytes = Vec::new();
    let exhausted = |_| DmaError::Exhausted { wanted_bytes: len_bytes, pool_bytes: 0 };
    bytes.try_reserve_exact(len_bytes).map_err(exhausted)?;
    bytes.resize(len_bytes, 0);
    Ok(bytes)
}
