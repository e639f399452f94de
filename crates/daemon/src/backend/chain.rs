//! A descriptor chain: copied off the ring once, and resolved against the guest's memory for each use.
//!
//! No request allocates for its chain: the copy goes into the [`Descriptors`] of an earlier request, and the resolved
//! [`Buffers`] live on the stack.

use std::time::Instant;

use transom_host::server::{GuestSlices, SLICES_INLINE};
use transom_wire::limits::DATA_LEN_MAX;
use virtio_queue::desc::split::Descriptor;
use vm_memory::GuestAddress;

use super::{GuestRam, dirty_log, in_flight::Ticket, view::MemoryView};

/// The longest chain accepted: a request's arguments, its reply's header, 256 pages of data, and a margin for drivers
/// that split buffers further. Bounds the cost of a chain in flight, and is the most that preadv(2) takes at once. An
/// indirect table could hold 65535 descriptors.
const DESCRIPTORS_MAX: usize = 1024;

/// Descriptors of one direction whose memory is kept for later chains: enough for Linux's largest request. Memory for a
/// longer chain is freed with that chain. A power of two, because a list grows to powers of two.
const DESCRIPTORS_KEPT_MAX: usize = SLICES_INLINE.next_power_of_two();

/// The most bytes of a chain that a reply can reach: the largest data, its header, and a margin for the structures of
/// other replies. Bounds the time to log a chain whose buffers have gigabytes.
const REPLY_LEN_MAX: u64 = DATA_LEN_MAX as u64 + 65536;

/// A request's buffers, by guest address.
pub(super) struct Chain {
    /// The head index, which is returned to the driver with the used length.
    pub(super) head: u16,
    /// When the chain was taken off the ring.
    pub(super) taken_at: Instant,
    descriptors: Descriptors,
    /// Keeps the request in flight until it is dropped, after the chain is back on the ring.
    ticket: Ticket,
    /// A readable descriptor follows a writable one, or there are more than [`DESCRIPTORS_MAX`].
    is_malformed: bool,
}

/// The copied descriptors of a chain. When empty, memory for the next chain.
#[derive(Default)]
pub(super) struct Descriptors {
    readable: Vec<Piece>,
    writable: Vec<Piece>,
}

struct Piece {
    addr: GuestAddress,
    len: usize,
}

/// A request's buffers in the daemon's address space.
#[derive(Default)]
pub(super) struct Buffers<'m> {
    pub(super) readable: GuestSlices<'m>,
    pub(super) writable: GuestSlices<'m>,
    /// A buffer lies outside the guest's memory, or the chain is malformed; `writable` ends before that buffer.
    pub(super) is_bad: bool,
}

impl Chain {
    /// Copies the first [`DESCRIPTORS_MAX`] descriptors of the chain `head` into `memory`, which must be empty.
    pub(super) fn copy(
        head: u16,
        mut from: impl Iterator<Item = Descriptor>,
        mut memory: Descriptors,
        ticket: Ticket,
    ) -> Self {
        let taken_at = Instant::now();
        let Descriptors { readable, writable } = &mut memory;
        let mut is_malformed = false;
        for descriptor in from.by_ref().take(DESCRIPTORS_MAX) {
            let piece = Piece { addr: descriptor.addr(), len: descriptor.len() as usize };
            if descriptor.is_write_only() {
                writable.push(piece);
            } else {
                is_malformed |= !writable.is_empty();
                readable.push(piece);
            }
        }
        is_malformed |= from.next().is_some();
        Self { head, taken_at, descriptors: memory, ticket, is_malformed }
    }

    /// Returns the ticket that keeps the request in flight, and the descriptors' memory for another chain.
    pub(super) fn into_parts(self) -> (Ticket, Descriptors) {
        (self.ticket, self.descriptors.emptied())
    }

    /// Returns the total length of the buffers.
    pub(super) fn len_bytes(&self) -> usize {
        let Descriptors { readable, writable } = &self.descriptors;
        readable.iter().chain(writable).fold(0, |sum, piece| sum.saturating_add(piece.len))
    }

    /// Marks all memory that the reply may have been written to, however short it is: a system call that failed may
    /// have written anywhere in its buffers.
    pub(super) fn mark_written(&self, memory: &GuestRam) {
        let mut left = REPLY_LEN_MAX;
        for piece in &self.descriptors.writable {
            let len = left.min(piece.len as u64);
            dirty_log::mark(memory, piece.addr, len);
            left -= len;
        }
    }

    /// Resolves the buffers in `memory` and appends them to `buffers`, which must be empty.
    pub(super) fn resolve<'m>(&self, memory: &MemoryView<'m>, buffers: &mut Buffers<'m>) {
        let Descriptors { readable, writable } = &self.descriptors;
        buffers.is_bad = self.is_malformed;
        buffers.is_bad |= resolve_into(memory, readable, &mut buffers.readable).is_err();
        buffers.is_bad |= resolve_into(memory, writable, &mut buffers.writable).is_err();
    }
}

impl Descriptors {
    fn emptied(mut self) -> Self {
        for list in [&mut self.readable, &mut self.writable] {
            list.clear();
            if list.capacity() > DESCRIPTORS_KEPT_MAX {
                *list = Vec::new();
            }
        }
        self
    }
}

/// Resolves `from` until the first buffer that is not in guest memory.
fn resolve_into<'m>(
    memory: &MemoryView<'m>,
    pieces: &[Piece],
    slices: &mut GuestSlices<'m>,
) -> Result<(), vm_memory::GuestMemoryError> {
    for piece in pieces {
        if let Some(slice) = memory.slice(piece.addr, piece.len) {
            slices.push(slice);
            continue;
        }
        for slice in memory.slices(piece.addr, piece.len) {
            slices.push(slice?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the capacity that a chain of `count` descriptors leaves for the next one.
    fn left_by(count: usize) -> usize {
        let mut descriptors = Descriptors::default();
        (0..count).for_each(|_| descriptors.readable.push(Piece { addr: GuestAddress(0), len: 0 }));
        let left = descriptors.emptied();
        assert!(left.readable.is_empty());
        left.readable.capacity()
    }

    #[test]
    fn memory_for_a_usual_chain_is_kept_and_for_a_longer_one_is_not() {
        assert!(left_by(SLICES_INLINE) >= SLICES_INLINE);
        assert_eq!(left_by(DESCRIPTORS_MAX), 0);
    }
}
