//! A descriptor chain, copied off the ring once; its buffers are resolved against the guest's memory for each use.

use std::time::Instant;

use virtio_queue::DescriptorChain;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryMmap, VolatileSlice};

use super::in_flight::Ticket;

/// Descriptors of one chain: beside a request's arguments and its reply's header, 256 pages of data and a margin for
/// drivers that cut finer. It bounds what a chain in flight costs us, and preadv(2) takes no more at once; an indirect
/// table could hold 65535.
const DESCRIPTORS_MAX: usize = 1024;

/// A request's buffers by guest address.
pub(super) struct Chain {
    /// The index that goes back with the used length.
    pub(super) head: u16,
    /// When it was taken off the ring.
    pub(super) taken_at: Instant,
    readable: Vec<Piece>,
    writable: Vec<Piece>,
    /// Ends with the chain, which is dropped once it is back on the ring.
    _ticket: Ticket,
    /// A readable descriptor came behind a writable one, or there were more than [`DESCRIPTORS_MAX`].
    is_malformed: bool,
}

struct Piece {
    addr: GuestAddress,
    len: usize,
}

/// A request's buffers in our address space.
#[derive(Default)]
pub(super) struct Buffers<'m> {
    pub(super) readable: Vec<VolatileSlice<'m>>,
    pub(super) writable: Vec<VolatileSlice<'m>>,
    /// Some buffer lies outside the guest's memory, or the chain is malformed; `writable` ends before that buffer.
    pub(super) is_bad: bool,
}

impl Chain {
    /// Copies the first [`DESCRIPTORS_MAX`] descriptors.
    pub(super) fn copy(mut descriptors: DescriptorChain<&GuestMemoryMmap<()>>, ticket: Ticket) -> Self {
        let head = descriptors.head_index();
        let mut chain = Self {
            head,
            taken_at: Instant::now(),
            readable: Vec::new(),
            writable: Vec::new(),
            _ticket: ticket,
            is_malformed: false,
        };
        for descriptor in descriptors.by_ref().take(DESCRIPTORS_MAX) {
            let piece = Piece { addr: descriptor.addr(), len: descriptor.len() as usize };
            if descriptor.is_write_only() {
                chain.writable.push(piece);
            } else {
                chain.is_malformed |= !chain.writable.is_empty();
                chain.readable.push(piece);
            }
        }
        chain.is_malformed |= descriptors.next().is_some();
        chain
    }

    /// Of all its descriptors.
    pub(super) fn len_bytes(&self) -> usize {
        self.readable.iter().chain(&self.writable).fold(0, |sum, piece| sum.saturating_add(piece.len))
    }

    /// Finds the buffers in `memory`.
    pub(super) fn resolve<'m>(&self, memory: &'m GuestMemoryMmap<()>) -> Buffers<'m> {
        let mut buffers = Buffers { is_bad: self.is_malformed, ..Buffers::default() };
        buffers.is_bad |= resolve_into(memory, &self.readable, &mut buffers.readable).is_err();
        buffers.is_bad |= resolve_into(memory, &self.writable, &mut buffers.writable).is_err();
        buffers
    }
}

/// Stops at the first buffer that is not memory.
fn resolve_into<'m>(
    memory: &'m GuestMemoryMmap<()>,
    pieces: &[Piece],
    slices: &mut Vec<VolatileSlice<'m>>,
) -> Result<(), vm_memory::GuestMemoryError> {
    slices.reserve(pieces.len());
    for piece in pieces {
        for slice in GuestMemoryBackend::get_slices(memory, piece.addr, piece.len) {
            slices.push(slice?);
        }
    }
    Ok(())
}
