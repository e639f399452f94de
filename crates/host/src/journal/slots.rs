//! The requests of one queue in flight: one slot for each head of a chain.
//!
//! A slot is free, taken, answered (the reply is whole in the guest's memory) or being published (the entry of the used
//! ring may have been written). Its first word says which, together with what is needed to publish it, so that each
//! step is one store. What a death between two stores leaves:
//!
//! | after | is found as | and becomes |
//! |---|---|---|
//! | taking a chain off the ring, before the slot is taken | not taken | taken again |
//! | the slot is taken, before the queue's position | a slot beyond the position | the position is the slot's |
//! | changes of the session, before the slot is answered | taken | served again; its changes are undone |
//! | the slot is answered | answered | published |
//! | the used ring's index, before the slot is free | being published at an index that the ring has passed | freed |
//!
//! The layout is not that of vhost-user's INFLIGHT region, whose slots have no place for a reply that is complete.

use std::sync::Arc;

use super::Journal;

/// Slots of a queue: as many as the largest ring has heads.
const SLOTS: usize = 32768;
/// Words of a slot: state, order, unique, and the ring's position after it.
const SLOT_LEN: usize = 32;
/// The queue's own words: its position and order, how many slots were ever used, and whether the ring is stopped.
const HEADER_LEN: usize = 64;
/// Memory of one queue.
pub(super) const QUEUE_LEN: usize = (HEADER_LEN + SLOTS * SLOT_LEN).next_multiple_of(4096);

const TAKEN: u64 = 1;
const ANSWERED: u64 = 2;
const PUBLISHING: u64 = 3;

/// The slots of one queue. Taken by its worker alone, changed by whoever serves the request.
#[derive(Debug, Clone)]
pub struct QueueSlots {
    journal: Arc<Journal>,
    at: usize,
}

/// A request that was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Left {
    /// The head of its chain.
    pub head: u16,
    /// Its place among those taken.
    order: u64,
    /// How far it had come.
    pub stage: Stage,
}

/// How far a request in flight had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is served again.
    Taken,
    /// Its reply of this many bytes is complete.
    Answered(u32),
    /// As before, and it may be the entry of the used ring at this index.
    Publishing(u32, u16),
}

impl QueueSlots {
    pub(super) fn new(journal: Arc<Journal>, at: usize) -> Self {
        Self { journal, at }
    }

    fn slot(&self, head: u16) -> usize {
        self.at + HEADER_LEN + usize::from(head) * SLOT_LEN
    }

    fn word(&self, at: usize) -> u64 {
        self.journal.area.word(at)
    }

    fn set(&self, at: usize, word: u64) {
        self.journal.area.set_word(at, word);
    }

    /// Records that the chain `head` is taken; `next` is the position of the next one on the available ring.
    pub fn take(&self, head: u16, next: u16) {
        let slot = self.slot(head);
        let order = self.word(self.at) >> 16;
        if self.word(self.at + 8) <= u64::from(head) {
            self.set(self.at + 8, u64::from(head) + 1);
        }
        self.set(slot + 8, order);
        self.set(slot + 16, 0);
        self.set(slot + 24, next.into());
        self.set(slot, TAKEN);
        self.set(self.at + 16, 0);
        self.journal.step("taken");
        self.set(self.at, (order + 1) << 16 | u64::from(next));
    }

    /// Records the request's number, by which its changes are found. Must be called before it is served.
    pub fn identify(&self, head: u16, unique: u64) {
        self.set(self.slot(head) + 16, unique);
    }

    /// Records that the reply of `len` bytes is complete.
    pub fn answer(&self, head: u16, len: u32) {
        self.journal.step("served");
        self.set(self.slot(head), ANSWERED | u64::from(len) << 32);
        self.journal.step("answered");
    }

    /// Records that the reply is about to be entered in the used ring at `index`. One at a time.
    pub fn publish(&self, head: u16, index: u16) {
        let slot = self.slot(head);
        self.set(slot, (self.word(slot) & !0xffff_ffff) | PUBLISHING | u64::from(index) << 16);
    }

    /// Returns how many requests have failed since the last call because nobody knows whether they were done.
    pub fn take_undecided(&self) -> u64 {
        self.journal.take_undecided()
    }

    /// Records that the chain is returned.
    pub fn free(&self, head: u16) {
        self.journal.step("published");
        self.set(self.slot(head), 0);
    }

    /// Forgets everything, for a ring that starts at a position that the front end names.
    pub fn clear(&self) {
        for head in 0..self.word(self.at + 8) {
            self.set(self.slot(head as u16), 0);
        }
        self.set(self.at, 0);
    }

    /// Records that the ring is stopped: its position counts no more once the front end knows it.
    pub fn stop(&self) {
        self.set(self.at + 16, 1);
    }

    /// Returns the requests in flight, in the order in which they were taken.
    pub fn left(&self) -> Vec<Left> {
        let slots = (0..self.word(self.at + 8)).map(|head| head as u16);
        let mut left: Vec<_> = slots
            .filter_map(|head| {
                let state = self.word(self.slot(head));
                let len = (state >> 32) as u32;
                let stage = match state & 0xff {
                    TAKEN => Stage::Taken,
                    ANSWERED => Stage::Answered(len),
                    PUBLISHING => Stage::Publishing(len, (state >> 16) as u16),
                    _ => return None,
                };
                Some(Left { head, order: self.word(self.slot(head) + 8), stage })
            })
            .collect();
        left.sort_by_key(|left| left.order);
        left
    }

    /// Returns the numbers of the requests that are being served, as far as they have one.
    pub(super) fn taken(&self) -> impl Iterator<Item = u64> {
        let slots = (0..self.word(self.at + 8)).map(|head| self.slot(head as u16));
        let taken = slots.filter(|&slot| self.word(slot) & 0xff == TAKEN);
        taken.map(|slot| self.word(slot + 16)).filter(|&unique| unique != 0)
    }

    /// Returns whether the ring was stopped, and nothing was taken off it since.
    pub fn is_stopped(&self) -> bool {
        self.word(self.at + 16) != 0
    }

    /// Returns the position of the next chain on the available ring, unless none was taken since the ring was set up.
    pub fn position(&self) -> Option<u16> {
        let word = self.word(self.at);
        match self.left().last() {
            Some(last) if last.order >= word >> 16 => Some(self.word(self.slot(last.head) + 24) as u16),
            _ if word == 0 => None,
            _ => Some(word as u16),
        }
    }
}
