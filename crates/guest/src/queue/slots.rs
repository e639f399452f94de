//! Slots for the requests that can be in flight at once: their owners and results.
//!
//! A slot belongs to the thread that took it until it is released; only the reaper moves it from in flight to done.

use alloc::boxed::Box;

use crate::{
    platform::Platform,
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
};

const IDLE: u32 = 0;
const IN_FLIGHT: u32 = 1;
const DONE: u32 = 2;

/// The slot of one request.
pub(super) struct Slot<P: Platform> {
    state: AtomicU32,
    written_bytes: AtomicU32,
    /// The ticket of the started message that uses the slot; 0 for a call.
    ticket: AtomicU64,
    /// Signalled when the request is done.
    pub(super) event: P::Event,
}

impl<P: Platform> Slot<P> {
    fn new() -> Self {
        Self {
            state: AtomicU32::new(IDLE),
            written_bytes: AtomicU32::new(0),
            ticket: AtomicU64::new(0),
            event: P::Event::default(),
        }
    }

    pub(super) fn depart(&self) {
        self.state.store(IN_FLIGHT, Ordering::Relaxed);
    }

    /// Records that the device has used the request.
    pub(super) fn arrive(&self, written_bytes: u32) {
        self.written_bytes.store(written_bytes, Ordering::Relaxed);
        self.state.store(DONE, Ordering::Release);
    }

    pub(super) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Returns the number of bytes that the device reports as written, once the request is done.
    pub(super) fn written_bytes(&self) -> usize {
        self.written_bytes.load(Ordering::Relaxed) as usize
    }

    pub(super) fn set_ticket(&self, ticket: u64) {
        self.ticket.store(ticket, Ordering::Release);
    }

    pub(super) fn ticket(&self) -> u64 {
        self.ticket.load(Ordering::Acquire)
    }
}

/// All slots of a queue.
pub(super) struct Slots<P: Platform> {
    slots: Box<[Slot<P>]>,
    /// One bit per slot, set while it is free.
    free: Box<[AtomicU64]>,
}

impl<P: Platform> Slots<P> {
    /// Creates `count` free slots, at most [`LEN_MAX`](crate::ring::LEN_MAX).
    pub(super) fn new(count: u16) -> Self {
        let free = (0..count).step_by(64).map(|first| {
            let here = (count - first).min(64);
            AtomicU64::new(!0 >> (64 - here))
        });
        Self { slots: (0..count).map(|_| Slot::new()).collect(), free: free.collect() }
    }

    pub(super) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    pub(super) fn get(&self, slot: u16) -> Option<&Slot<P>> {
        self.slots.get(usize::from(slot))
    }

    /// Takes the lowest free slot, whose memory is the most likely to be in a cache.
    pub(super) fn take(&self) -> Option<u16> {
        self.free.iter().enumerate().find_map(|(index, word)| {
            let mut free = word.load(Ordering::Relaxed);
            while free != 0 {
                let lowest = free & free.wrapping_neg();
                let before = word.fetch_and(!lowest, Ordering::Acquire);
                if before & lowest != 0 {
                    return Some((index * 64) as u16 + lowest.trailing_zeros() as u16);
                }
                free = before & !lowest;
            }
            None
        })
    }

    pub(super) fn has_free(&self) -> bool {
        self.free.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    /// Releases a slot that is not in flight.
    pub(super) fn release(&self, slot: u16) {
        if let (Some(of), Some(word)) = (self.get(slot), self.free.get(usize::from(slot / 64))) {
            of.state.store(IDLE, Ordering::Relaxed);
            of.set_ticket(0);
            word.fetch_or(1 << (slot % 64), Ordering::Release);
        }
    }
}
