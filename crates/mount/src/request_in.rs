//! First stage: reads a request from `/dev/fuse` into a slot, and finds out where it goes.
//!
//! Requests that are answered stay in their slot. FORGET, BATCH_FORGET and INTERRUPT go through the high-priority
//! queue, and are copied out of the slot.

use std::sync::Arc;

use rustix::io::Errno;
use transom_wire::{Opcode, header::InHeader, operation::Effect, ops::interrupt::InterruptIn};
use zerocopy::FromBytes as _;

use super::{MountEnd, fuse_device::FuseDevice, request_queue::RequestQueue};

/// Reads requests through one descriptor of `/dev/fuse`.
pub(super) struct RequestReader {
    device: Arc<FuseDevice>,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Incoming {
    /// No request is waiting.
    Empty,
    /// A request that needs nothing: its caller was interrupted before it was read, or it is too short to be one.
    Skipped,
    /// A FORGET or BATCH_FORGET: the whole message.
    Forget(Vec<u8>),
    /// An INTERRUPT: the whole message, and which request it interrupts.
    Interrupt(Vec<u8>, Option<u64>),
    /// Any other request, which the kernel expects a reply to. It lies in the slot.
    Request { header: InHeader, opcode: Option<Opcode>, len_bytes: usize },
}

impl RequestReader {
    /// Creates a reader for `device`.
    pub(super) fn new(device: Arc<FuseDevice>) -> Self {
        Self { device }
    }

    /// Reads a request into `slot` of `queue`. Does not block.
    ///
    /// # Errors
    /// The mount has ended, or a system call has failed.
    pub(super) fn read(&self, queue: &RequestQueue, slot: u16) -> Result<Incoming, MountEnd> {
        match self.device.read(queue.request_buffer(slot)) {
            Ok(len_bytes) => Ok(classify(queue, slot, len_bytes)),
            Err(Errno::AGAIN) => Ok(Incoming::Empty),
            // ENOENT: the caller was interrupted before the request was read.
            Err(Errno::INTR | Errno::NOENT) => Ok(Incoming::Skipped),
            Err(errno) => Err(MountEnd::of_reading(errno)),
        }
    }
}

fn classify(queue: &RequestQueue, slot: u16, len_bytes: usize) -> Incoming {
    let mut header = [0; size_of::<InHeader>()];
    if len_bytes < header.len() {
        return Incoming::Skipped;
    }
    // Read once: the daemon can change the slot's memory.
    queue.read_request(slot, &mut header);
    let header: InHeader = zerocopy::transmute!(header);
    let opcode = Opcode::from_u32(header.opcode.get());
    match opcode.map_or(Effect::None, |opcode| opcode.row().effect) {
        Effect::Forgets => Incoming::Forget(queue.copy_request(slot, &header, len_bytes)),
        Effect::Interrupts => {
            let message = queue.copy_request(slot, &header, len_bytes);
            let interrupted = InterruptIn::read_from_prefix(&message[size_of::<InHeader>()..]);
            let unique = interrupted.ok().map(|(args, _)| args.unique.get());
            Incoming::Interrupt(message, unique)
        }
        Effect::None
        | Effect::LooksUp
        | Effect::Makes(_)
        | Effect::Opens
        | Effect::MakesAndOpens
        | Effect::OpensNameless
        | Effect::Lists
        | Effect::Removes
        | Effect::Renames
        | Effect::Closes
        | Effect::Flushes
        | Effect::Locks => Incoming::Request { header, opcode, len_bytes },
    }
}

#[cfg(test)]
#[path = "request_in_test.rs"]
mod tests;
