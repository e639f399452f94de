//! One request queue: its ring, the slots in shared memory, and what is in flight.
//!
//! A request lies in a slot, which its chain in the ring points to; the daemon writes the reply into the same slot.
//! This file knows nothing of `/dev/fuse` and does not notify the device, so it can be tested without either.

use std::sync::Arc;

use transom_guest::{
    dma::DmaMemory,
    ring::{Ring, Used},
};
use transom_user::arena::Arena;
use transom_wire::{Opcode, header::InHeader};
use zerocopy::IntoBytes as _;

use super::{
    MountEnd,
    fuse_device::SharedBuffer,
    passthrough::RequestKind,
    reply_room::{self, ARGS_LEN},
    slots::{REQUEST_LEN_MAX, ReplyBuffer, Slots, segment},
};

/// A request queue, used by one thread.
pub(super) struct RequestQueue {
    /// The device's number of the queue.
    index: u16,
    ring: Ring,
    slots: Slots,
    memory: Arc<SlotMemory>,
    /// By slot: the request in it.
    in_flight: Vec<InFlight>,
}

/// The memory of the slots of all queues.
pub(super) struct SlotMemory {
    pub(super) memory: DmaMemory,
    /// Keeps the memory mapped.
    pub(super) _arena: Arc<Arena>,
}

/// The request in a slot.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct InFlight {
    pub(super) unique: u64,
    pub(super) len_bytes: usize,
    pub(super) kind: RequestKind,
    /// Whether the daemon has the request and has not answered it.
    pub(super) is_pending: bool,
}

impl RequestQueue {
    /// Creates the queue with number `index` from its ring and `slots`, one for each chain that fits the ring, in
    /// `memory`.
    pub(super) fn new(index: u16, ring: Ring, slots: Slots, memory: Arc<SlotMemory>) -> Self {
        let in_flight = vec![InFlight::default(); slots.count_with_spare()];
        Self { index, ring, slots, memory, in_flight }
    }

    /// Returns the device's number of the queue.
    pub(super) fn index(&self) -> u16 {
        self.index
    }

    /// Returns the number of slots, the spare one included.
    pub(super) fn slot_count(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the lowest free slot, which is then taken.
    pub(super) fn take_slot(&mut self) -> Option<u16> {
        self.slots.take()
    }

    /// Makes a slot that was taken free again.
    pub(super) fn free_slot(&mut self, slot: u16) {
        self.slots.give(slot);
    }

    /// Returns whether [`Self::take_slot`] would succeed.
    pub(super) fn has_free_slot(&self) -> bool {
        self.slots.has_free()
    }

    /// Returns the slot for a request that is read while all others are taken. It is never in flight.
    pub(super) fn spare_slot(&self) -> u16 {
        self.slots.spare()
    }

    /// Returns the buffer that a request is read into.
    pub(super) fn request_buffer(&self, slot: u16) -> SharedBuffer<'_> {
        SharedBuffer { memory: self.memory(), offset: self.slots.request(slot), len_bytes: REQUEST_LEN_MAX }
    }

    /// Copies the start of the request in `slot` into `bytes`. The daemon may have changed it.
    pub(super) fn read_request(&self, slot: u16, bytes: &mut [u8]) {
        self.memory().read(self.slots.request(slot), bytes);
    }

    /// Copies the request of `len_bytes` in `slot`, whose header was read before.
    ///
    /// The copy has `header`, whatever the daemon has made of those bytes since.
    pub(super) fn copy_request(&self, slot: u16, header: &InHeader, len_bytes: usize) -> Vec<u8> {
        let mut message = vec![0; len_bytes];
        self.read_request(slot, &mut message);
        message[..size_of::<InHeader>()].copy_from_slice(header.as_bytes());
        message
    }

    /// Writes a request into `slot`.
    pub(super) fn write_request(&self, slot: u16, message: &[u8]) {
        self.memory().write(self.slots.request(slot), message);
    }

    /// Copies the first arguments of the request of `len_bytes` in `slot`, followed by zeros if there are fewer.
    pub(super) fn args(&self, slot: u16, len_bytes: usize) -> [u8; ARGS_LEN] {
        let mut args = [0; ARGS_LEN];
        let known = args.len().min(len_bytes - size_of::<InHeader>());
        self.memory().read(self.slots.request(slot) + size_of::<InHeader>(), &mut args[..known]);
        args
    }

    /// Returns where the reply to the request of `request_len` bytes in `slot` lies.
    pub(super) fn reply_buffer(&self, slot: u16, request_len: usize) -> SharedBuffer<'_> {
        let ReplyBuffer { offset, len_bytes } = self.slots.reply(slot, request_len);
        SharedBuffer { memory: self.memory(), offset, len_bytes }
    }

    /// Puts the request of `len_bytes` in `slot` into the ring, and returns whether to notify the device.
    ///
    /// The reply gets as much room as the request asks for and no more: some daemons fill whatever they are given.
    pub(super) fn submit(
        &mut self,
        slot: u16,
        header: &InHeader,
        len_bytes: usize,
        args: &[u8; ARGS_LEN],
        kind: RequestKind,
    ) -> bool {
        let memory = &self.memory.memory;
        let reply = self.slots.reply(slot, len_bytes);
        let reply_len = reply_room::len_bytes(Opcode::from_u32(header.opcode.get()), args).min(reply.len_bytes);
        let readable = [segment(memory, self.slots.request(slot), len_bytes)];
        let writable = [segment(memory, reply.offset, reply_len)];
        let unique = header.unique.get();
        self.in_flight[usize::from(slot)] = InFlight { unique, len_bytes, kind, is_pending: true };
        self.ring.add(&readable, &writable, slot).expect("the ring has room for as many chains as there are slots");
        self.ring.needs_notify()
    }

    /// Takes a reply from the ring. Its slot stays taken until [`Self::complete`].
    ///
    /// # Errors
    /// [`MountEnd::Broken`] if the daemon returned a chain that it did not have.
    pub(super) fn pop(&mut self) -> Result<Option<Used>, MountEnd> {
        self.ring.pop().map_err(|broken| MountEnd::Broken(broken.0))
    }

    /// Marks the request in `slot` as answered. The slot stays taken.
    pub(super) fn set_answered(&mut self, slot: u16) {
        self.in_flight[usize::from(slot)].is_pending = false;
    }

    /// Marks the request in `slot` as answered, and makes the slot free.
    pub(super) fn complete(&mut self, slot: u16) {
        self.set_answered(slot);
        self.slots.give(slot);
    }

    /// Returns the request that was last submitted from `slot`.
    pub(super) fn in_flight(&self, slot: u16) -> InFlight {
        self.in_flight[usize::from(slot)]
    }

    /// Returns the slots whose requests the daemon has not answered.
    pub(super) fn pending(&self) -> impl Iterator<Item = (u16, InFlight)> + '_ {
        (0..).zip(self.in_flight.iter().copied()).filter(|(_, in_flight)| in_flight.is_pending)
    }

    /// Returns the number of requests in the ring.
    pub(super) fn pending_count(&self) -> u16 {
        self.ring.in_flight()
    }

    /// Returns whether [`Self::pop`] has something to return, without a memory barrier.
    pub(super) fn has_reply(&self) -> bool {
        self.ring.has_used()
    }

    /// Asks the device to signal the next reply. Returns whether one has come already.
    pub(super) fn enable_signal(&mut self) -> bool {
        self.ring.arm()
    }

    /// Tells the device that replies need not be signalled.
    pub(super) fn disable_signal(&mut self) {
        self.ring.disarm();
    }

    fn memory(&self) -> &DmaMemory {
        &self.memory.memory
    }
}

#[cfg(test)]
#[path = "request_queue_test.rs"]
mod tests;
