//! Where requests and their replies lie while they are in flight: one slot for each, in the memory shared with the daemon.
//!
//! A request is read so that its data begins on a page, and the room for its reply lies behind it so that the reply's data
//! does too: a slot holds the longest request with a short reply, or a short request with the longest reply.
//! A slot's pages are only used once touched, and the lowest free slot is taken, so that few are.

use transom_guest::{dma::DmaMemory, ring::Segment};
use transom_wire::{
    header::{InHeader, OutHeader},
    ops::write::WriteIn,
};

/// Bytes of data in one request or reply; INIT tells the kernel.
pub(super) const DATA_LEN_MAX: usize = 1 << 20;
const PAGE: usize = 4096;
/// What stands before the data of a WRITE; the kernel takes no shorter room for its requests.
const WRITE_HEAD_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// Room for one request.
pub(super) const REQUEST_LEN_MAX: usize = WRITE_HEAD_LEN + DATA_LEN_MAX;
/// Within a slot: where the request begins.
const REQUEST_OFFSET: usize = PAGE - WRITE_HEAD_LEN;
/// A page for the request's head, its data, a page at whose end the reply's head lies, and a page for a short reply.
pub(super) const SLOT_LEN: usize = PAGE + DATA_LEN_MAX + 2 * PAGE;

/// The slots of one queue.
pub(super) struct Slots {
    /// Where they begin in the memory.
    start: usize,
    count: u16,
    /// One bit a slot, set while it is free.
    free: Vec<u64>,
}

/// Where a reply may be written, as the device finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) offset: usize,
    pub(super) len_bytes: usize,
}

impl Slots {
    /// `count` slots from `start` on, and one more, which is not given out by [`Self::take`].
    pub(super) fn new(start: usize, count: u16) -> Self {
        let free = (0..count).step_by(64).map(|first| !0 >> (64 - (count - first).min(64))).collect();
        Self { start, count, free }
    }

    /// Bytes of memory that `count` slots take, with the one to spare.
    pub(super) fn len_bytes(count: u16) -> usize {
        (usize::from(count) + 1) * SLOT_LEN
    }

    /// The lowest free slot.
    pub(super) fn take(&mut self) -> Option<u16> {
        let (index, word) = self.free.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some((index * 64) as u16 + bit as u16)
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.iter().any(|word| *word != 0)
    }

    pub(super) fn give(&mut self, slot: u16) {
        self.free[usize::from(slot / 64)] |= 1 << (slot % 64);
    }

    /// The slot to spare: for a request that is looked at before it is known whether it needs one.
    pub(super) fn spare(&self) -> u16 {
        self.count
    }

    /// Offset in the memory of the request in `slot`.
    pub(super) fn request(&self, slot: u16) -> usize {
        self.offset(slot) + REQUEST_OFFSET
    }

    /// What is left for the reply to a request of `request_len` bytes, at most [`REQUEST_LEN_MAX`].
    pub(super) fn room(&self, slot: u16, request_len: usize) -> Room {
        let behind = (REQUEST_OFFSET + request_len).next_multiple_of(PAGE);
        let offset = behind + PAGE - size_of::<OutHeader>();
        Room { offset: self.offset(slot) + offset, len_bytes: SLOT_LEN - offset }
    }

    fn offset(&self, slot: u16) -> usize {
        self.start + usize::from(slot) * SLOT_LEN
    }
}

/// A piece of `memory` for a descriptor. Its length is below 4 GiB, as a slot's is.
pub(super) fn segment(memory: &DmaMemory, offset: usize, len_bytes: usize) -> Segment {
    Segment { address: memory.address() + offset as u64, len_bytes: len_bytes as u32 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_request_leaves_room_for_a_reply_and_the_shortest_for_the_longest() {
        let slots = Slots::new(3 * PAGE, 2);
        let room = slots.room(1, REQUEST_LEN_MAX);
        assert_eq!(room.offset + room.len_bytes, 3 * PAGE + 2 * SLOT_LEN);
        assert!(room.len_bytes >= PAGE && room.offset >= slots.request(1) + REQUEST_LEN_MAX);
        let room = slots.room(0, WRITE_HEAD_LEN);
        assert!(room.len_bytes >= size_of::<OutHeader>() + DATA_LEN_MAX);
    }

    #[test]
    fn data_of_either_direction_begins_on_a_page() {
        let slots = Slots::new(0, 4);
        for request_len in [41, WRITE_HEAD_LEN, WRITE_HEAD_LEN + 1, WRITE_HEAD_LEN + PAGE, REQUEST_LEN_MAX] {
            assert!((slots.request(3) + WRITE_HEAD_LEN).is_multiple_of(PAGE));
            let room = slots.room(3, request_len);
            assert!((room.offset + size_of::<OutHeader>()).is_multiple_of(PAGE));
            assert!(room.offset >= slots.request(3) + request_len);
        }
    }

    proptest! {
        #[test]
        fn slots_are_given_out_once_and_the_lowest_first(steps in prop::collection::vec(any::<Option<u8>>(), 1..400)) {
            let mut slots = Slots::new(0, 100);
            let (mut free, mut taken): (BTreeSet<u16>, Vec<u16>) = ((0..100).collect(), Vec::new());
            for step in steps {
                match step {
                    Some(index) if !taken.is_empty() => {
                        let slot = taken.swap_remove(usize::from(index) % taken.len());
                        slots.give(slot);
                        free.insert(slot);
                    }
                    _ => {
                        let slot = slots.take();
                        prop_assert_eq!(slot, free.pop_first());
                        taken.extend(slot);
                    }
                }
            }
        }
    }
}
