//! Replies to started messages that have come, moved out of their slots for others.
//!
//! An interrupt handler takes the lock of the tickets too, and may have interrupted the allocator on its own processor.
//! So nothing is allocated or freed while that lock is held.

use alloc::vec::Vec;
use core::mem;

use super::{
    Queue,
    tickets::{Owned, Tickets},
};
use crate::{
    platform::{Event as _, Platform},
    sync::{MutexGuard, atomic::Ordering, rank},
    transport::Transport,
};

impl<P: Platform, T: Transport + 'static> Queue<P, T> {
    /// Moves replies that have come out of their slots.
    pub(super) fn harvest(&self) {
        while self.unclaimed.load(Ordering::Acquire) != 0 && self.harvest_one(|_| true) {}
    }

    /// Locks the tickets, with room for one more early reply.
    fn lock_with_room(&self) -> MutexGuard<'_, P, { rank::QUEUE }, Tickets> {
        loop {
            let mut tickets = self.tickets.lock();
            if tickets.has_room() {
                return tickets;
            }
            let wanted = (tickets.early.len() + 1) * 2;
            drop(tickets);
            let mut larger = Vec::with_capacity(wanted);
            tickets = self.tickets.lock();
            if larger.capacity() > tickets.early.len() {
                larger.append(&mut tickets.early);
                mem::swap(&mut larger, &mut tickets.early);
            }
            drop(tickets);
            // The former one, which is empty, is freed here.
            drop(larger);
        }
    }

    /// Moves one reply that has come, of a message that `is_meant`.
    pub(super) fn harvest_one(&self, is_meant: impl Fn(&Owned) -> bool) -> bool {
        let mut tickets = self.lock_with_room();
        let is_done = |at: usize| self.slots.get(at as u16).is_some_and(|slot| slot.is_done());
        let mut places = tickets.by_slot.iter().enumerate();
        let ready = places.position(|(at, owned)| owned.as_ref().is_some_and(&is_meant) && is_done(at));
        let Some(at) = ready else { return false };
        let Some(place) = tickets.by_slot.get_mut(at) else { return false };
        let waker = place.as_mut().and_then(|owned| self.take_waker(owned));
        let Some(mut owned) = self.take_owned(place) else { return false };
        self.claim();
        if !owned.is_unwanted {
            let reply = self.read_reply(at as u16, &mut owned);
            tickets.early.push((owned.ticket, reply));
        }
        drop(tickets);
        drop(owned);
        self.release(at as u16);
        // Its waiter checks the early replies.
        if let Some(slot) = self.slots.get(at as u16) {
            slot.event.wake_all();
        }
        // Last, since it may start a request, which takes a slot.
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }
}
