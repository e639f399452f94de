//! A descriptor chain, copied off the ring once; its buffers are resolved against the guest's memory for each use.
//!
//! No request allocates for its chain: the copy goes into [`Descriptors`] that an earlier request has left, and the
//! resolved [`Buffers`] lie on the stack.

use std::time::Instant;

use transom_host::server::{GuestSlices, SLICES_INLINE};
use virtio_queue::DescriptorChain;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use super::in_flight::Ticket;

/// Descriptors of one chain: beside a request's arguments and its reply's header, 256 pages of data and a margin for
/// drivers that cut finer. It bounds what a chain in flight costs us, and preadv(2) takes no more at once; an indirect
/// table could hold 65535.
const DESCRIPTORS_MAX: usize = 1024;

/// Descriptors of one direction whose memory is kept for later chains: what the largest request of Linux has. A chain
/// with more allocates, and what it allocates goes with it. A list grows to powers of two.
const DESCRIPTORS_KEPT_MAX: usize = SLICES_INLINE.next_power_of_two();

/// A request's buffers by guest address.
pub(super) struct Chain {
    /// The index that goes back with the used length.
    pub(super) head: u16,
    /// When it was taken off the ring.
    pub(super) taken_at: Instant,
    descriptors: Descriptors,
    /// The request is in flight until this is dropped, which is once the chain is back on the ring.
    ticket: Ticket,
    /// A readable descriptor came behind a writable one, or there were more than [`DESCRIPTORS_MAX`].
    is_malformed: bool,
}

/// The copied descriptors of a chain; empty ones are memory for the next chain.
#[derive(Default)]
pub(super) struct Descriptors {
    readable: Vec<Piece>,
    writable: Vec<Piece>,
}

struct Piece {
    addr: GuestAddress,
    len: usize,
}

/// A request's buffers in our address space.
#[derive(Default)]
pub(super) struct Buffers<'m> {
    pub(super) readable: GuestSlices<'m>,
    pub(super) writable: GuestSlices<'m>,
    /// Some buffer lies outside the guest's memory, or the chain is malformed; `writable` ends before that buffer.
    pub(super) is_bad: bool,
}

impl Chain {
    /// Copies the first [`DESCRIPTORS_MAX`] descriptors of `from` into `memory`, which is empty.
    pub(super) fn copy(
        mut from: DescriptorChain<&GuestMemoryMmap<()>>,
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
        Self { head: from.head_index(), taken_at, descriptors: memory, ticket, is_malformed }
    }

    /// Returns what keeps the request in flight, and the memory of the descriptors for another chain.
    pub(super) fn into_parts(self) -> (Ticket, Descriptors) {
        (self.ticket, self.descriptors.emptied())
    }

    /// Of all its descriptors.
    pub(super) fn len_bytes(&self) -> usize {
        let Descriptors { readable, writable } = &self.descriptors;
        readable.iter().chain(writable).fold(0, |sum, piece| sum.saturating_add(piece.len))
    }

    /// Finds the buffers in `memory` and adds them to `buffers`, which are empty.
    pub(super) fn resolve<'m>(&self, memory: &'m GuestMemoryMmap<()>, buffers: &mut Buffers<'m>) {
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

/// Stops at the first buffer that is not memory.
fn resolve_into<'m>(
    memory: &'m GuestMemoryMmap<()>,
    pieces: &[Piece],
    slices: &mut GuestSlices<'m>,
) -> Result<(), vm_memory::GuestMemoryError> {
    for piece in pieces {
        for slice in GuestMemoryBackend::get_slices(memory, piece.addr, piece.len) {
            slices.push(slice?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a chain of `count` descriptors leaves for the next one.
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
