//! The slots of a queue: where requests and their replies lie while they are in flight, in memory shared with the
//! daemon.
//!
//! The data of a request begins on a page, and so does the data of the reply, which lies after the request. A slot
//! holds the longest request with a short reply, or a short request with the longest reply. The lowest free slot is
//! taken first, so that few pages are used.

use transom_guest::{dma::DmaMemory, ring::Segment};
use transom_wire::{
    header::{InHeader, OutHeader},
    ops::write::WriteIn,
};

/// The most bytes of data in one request or reply. INIT tells the kernel.
pub(super) const DATA_LEN_MAX: usize = 1 << 20;
const PAGE: usize = 4096;
/// Bytes before the data of a WRITE. The kernel does not accept a shorter buffer for its requests.
const WRITE_HEAD_LEN: usize = size_of::<InHeader>() + size_of::<WriteIn>();
/// The longest request.
pub(super) const REQUEST_LEN_MAX: usize = WRITE_HEAD_LEN + DATA_LEN_MAX;
/// Where the request begins within a slot.
const REQUEST_OFFSET: usize = PAGE - WRITE_HEAD_LEN;
/// A page that ends with the request's header and arguments, its data, a page that ends with the reply's header, and a
/// page for a short reply.
pub(super) const SLOT_LEN: usize = PAGE + DATA_LEN_MAX + 2 * PAGE;

/// The slots of one queue.
pub(super) struct Slots {
    /// Offset of the first slot in the memory.
    start: usize,
    count: u16,
    /// One bit for each slot, set while it is free.
    free: Vec<u64>,
}

/// Where a reply is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReplyBuffer {
    pub(super) offset: usize,
    pub(super) len_bytes: usize,
}

impl Slots {
    /// Creates `count` free slots from offset `start` on, and the spare slot, which [`Self::take`] does not return.
    pub(super) fn new(start: usize, count: u16) -> Self {
        let free = (0..count).step_by(64).map(|first| !0 >> (64 - (count - first).min(64))).collect();
        Self { start, count, free }
    }

    /// Returns the bytes of memory that `count` slots and the spare slot need.
    pub(super) fn len_bytes(count: u16) -> usize {
        (usize::from(count) + 1) * SLOT_LEN
    }

    /// Takes and returns the lowest free slot.
    pub(super) fn take(&mut self) -> Option<u16> {
        let (index, word) = self.free.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros();
        *word &= *word - 1;
        Some((index * 64) as u16 + bit as u16)
    }

    /// Returns the number of slots, the spare slot included.
    pub(super) fn count_with_spare(&self) -> usize {
        usize::from(self.count) + 1
    }

    /// Returns whether a slot is free.
    pub(super) fn has_free(&self) -> bool {
        self.free.iter().any(|word| *word != 0)
    }

    /// Makes `slot` free.
    pub(super) fn give(&mut self, slot: u16) {
        self.free[usize::from(slot / 64)] |= 1 << (slot % 64);
    }

    /// Returns the spare slot, for a request that may not need a slot.
    pub(super) fn spare(&self) -> u16 {
        self.count
    }

    /// Returns the offset in the memory of the request in `slot`.
    pub(super) fn request(&self, slot: u16) -> usize {
        self.offset(slot) + REQUEST_OFFSET
    }

    /// Returns where the reply to a request of `request_len` bytes, at most [`REQUEST_LEN_MAX`], is written.
    pub(super) fn reply(&self, slot: u16, request_len: usize) -> ReplyBuffer {
        let request_end = (REQUEST_OFFSET + request_len).next_multiple_of(PAGE);
        let offset = request_end + PAGE - size_of::<OutHeader>();
        ReplyBuffer { offset: self.offset(slot) + offset, len_bytes: SLOT_LEN - offset }
    }

    fn offset(&self, slot: u16) -> usize {
        self.start + usize::from(slot) * SLOT_LEN
    }
}

/// Returns a range of `memory` for a descriptor. Its length must be less than 4 GiB, as that of a slot is.
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
        let reply = slots.reply(1, REQUEST_LEN_MAX);
        assert_eq!(reply.offset + reply.len_bytes, 3 * PAGE + 2 * SLOT_LEN);
        assert!(reply.len_bytes >= PAGE && reply.offset >= slots.request(1) + REQUEST_LEN_MAX);
        let reply = slots.reply(0, WRITE_HEAD_LEN);
        assert!(reply.len_bytes >= size_of::<OutHeader>() + DATA_LEN_MAX);
    }

    #[test]
    fn data_of_requests_and_replies_begins_on_a_page() {
        let slots = Slots::new(0, 4);
        for request_len in [41, WRITE_HEAD_LEN, WRITE_HEAD_LEN + 1, WRITE_HEAD_LEN + PAGE, REQUEST_LEN_MAX] {
            assert!((slots.request(3) + WRITE_HEAD_LEN).is_multiple_of(PAGE));
            let reply = slots.reply(3, request_len);
            assert!((reply.offset + size_of::<OutHeader>()).is_multiple_of(PAGE));
            assert!(reply.offset >= slots.request(3) + request_len);
        }
    }

    proptest! {
        #[test]
        fn the_lowest_free_slot_is_taken_and_only_once(steps in prop::collection::vec(any::<Option<u8>>(), 1..400)) {
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
