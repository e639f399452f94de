//! The shared parts of a ring: every load and store, with the memory order that the other side relies on.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use zerocopy::IntoBytes as _;

use super::{
    Barriers, RingSettings,
    layout::{AVAIL_NO_INTERRUPT, Descriptor, Layout, USED_NO_NOTIFY},
};
use crate::{
    dma::{DmaBuffer, DmaError, DmaOps},
    transport::QueueAddresses,
};

/// Layout of both rings: flags, then index, then the elements.
const FLAGS: usize = 0;
const INDEX: usize = 2;
const ELEMENTS: usize = 4;

/// The memory of one ring.
pub(crate) struct RingMemory {
    buffer: DmaBuffer,
    layout: Layout,
    len: u16,
    segments_max: u16,
    has_event_index: bool,
    barriers: Barriers,
}

impl RingMemory {
    pub(super) fn new(ops: &Arc<dyn DmaOps>, settings: &RingSettings) -> Result<Self, DmaError> {
        let layout = Layout::new(settings);
        let buffer = DmaBuffer::new(ops, layout.len_bytes)?;
        let &RingSettings { len, segments_max, has_event_index, barriers, .. } = settings;
        Ok(Self { buffer, layout, len, segments_max, has_event_index, barriers })
    }

    pub(super) fn addresses(&self) -> QueueAddresses {
        let start = self.buffer.address();
        QueueAddresses {
            descriptors: start,
            available: start + self.layout.available as u64,
            used: start + self.layout.used as u64,
        }
    }

    pub(super) fn write_descriptor(&self, index: u16, descriptor: &Descriptor) {
        self.buffer.write(usize::from(index) * size_of::<Descriptor>(), descriptor.as_bytes());
    }

    /// Writes entry `index` of the table of the chain that begins with `head`.
    pub(super) fn write_indirect(&self, head: u16, index: u16, descriptor: &Descriptor) {
        let offset = self.table(head) + usize::from(index) * size_of::<Descriptor>();
        self.buffer.write(offset, descriptor.as_bytes());
    }

    pub(super) fn table_address(&self, head: u16) -> u64 {
        self.buffer.address() + self.table(head) as u64
    }

    fn table(&self, head: u16) -> usize {
        self.layout.tables + usize::from(head) * usize::from(self.segments_max) * size_of::<Descriptor>()
    }

    /// Puts `head` at `index` of the available ring and advances the index (§2.7.13).
    pub(super) fn publish(&self, index: u16, head: u16) {
        let element = self.layout.available + ELEMENTS + 2 * usize::from(index & (self.len - 1));
        self.buffer.store_u16(element, head, Relaxed);
        // Release: a device that sees the index sees the chain and the request in it.
        self.barriers.of_platform();
        self.buffer.store_u16(self.layout.available + INDEX, index.wrapping_add(1), Release);
    }

    /// Returns whether the device has asked to be notified of any index in `old..new` (§2.7.10).
    pub(super) fn device_wants_notify(&self, old: u16, new: u16) -> bool {
        // Either the device sees the available index that was stored, or the driver sees the device's request for a
        // notification: the device stores, fences and loads in the opposite order.
        self.barriers.full();
        if self.has_event_index {
            let event = self.buffer.load_u16(self.layout.used + ELEMENTS + 8 * usize::from(self.len), Relaxed);
            passes(event, old, new)
        } else {
            self.buffer.load_u16(self.layout.used + FLAGS, Relaxed) & USED_NO_NOTIFY == 0
        }
    }

    /// Loads the used index. Acquire: what the device wrote before it advanced the index is visible.
    pub(crate) fn device_used_index(&self) -> u16 {
        let index = self.buffer.load_u16(self.layout.used + INDEX, Acquire);
        self.barriers.of_platform();
        index
    }

    /// Returns id and length, each loaded once.
    pub(super) fn used_element(&self, index: u16) -> (u32, u32) {
        let element = self.layout.used + ELEMENTS + 8 * usize::from(index & (self.len - 1));
        (self.buffer.load_u32(element, Relaxed), self.buffer.load_u32(element + 4, Relaxed))
    }

    /// Requests an interrupt once the used index passes `index` (§2.7.7).
    pub(super) fn interrupt_after(&self, index: u16) {
        let event = self.layout.available + ELEMENTS + 2 * usize::from(self.len);
        self.buffer.store_u16(event, index, Relaxed);
    }

    /// Without an event index: sets whether interrupts are wanted at all. With one the flags are 0 (§2.7.7.1).
    pub(super) fn want_interrupts(&self, are_wanted: bool) {
        let flags = if are_wanted || self.has_event_index { 0 } else { AVAIL_NO_INTERRUPT };
        self.buffer.store_u16(self.layout.available + FLAGS, flags, Relaxed);
    }

    /// Returns whether the device is past `index`, checked after the request for an interrupt is visible to it.
    pub(super) fn has_used_after_fence(&self, index: u16) -> bool {
        // As in `device_wants_notify`, with the parts swapped.
        self.barriers.full();
        self.device_used_index() != index
    }
}

/// Returns whether `event` lies in `old..new`, all modulo 2¹⁶: `vring_need_event` of §2.7.7.2.
fn passes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
