//! Serves the requests that another daemon has taken off the ring: those that a process has left in flight when it
//! died, and those that waited for a lock when their guest was migrated.
//!
//! A reply that was complete is published, unless the used ring shows that it was. Every other request is served again,
//! in the order in which they were taken; the file system finds out what of it was done.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
    thread,
};

use transom_host::{
    journal::{Left, QueueSlots, Stage},
    server::FileSystem,
};
use vhost_user_backend::VringT;
use virtio_queue::QueueT;
use vm_memory::{GuestAddress, GuestAddressSpace};

use super::{
    chain::Chain,
    descriptors::Walk,
    in_flight::Ticket,
    queue::{Queue, TAKE_BACK_EVERY},
    view::MemoryView,
    vring::Vring,
    worker::WorkerState,
};

impl<F: FileSystem + 'static> Queue<F> {
    /// Prepares to serve the ring, if it runs: the session goes on here. Returns `None` if something has to be done for
    /// that, and the ring is stopped before it is. If requests of another daemon are to be served first, also returns a
    /// ticket to hold meanwhile: a stop that comes then waits for them.
    ///
    /// Each step is made under the ring's lock: a thread that was woken before its ring was stopped must not take what
    /// the destination is to have. The lock is free while this waits for the holder of a lock.
    pub(super) fn begin(&self, vring: &Vring) -> Option<Option<Ticket>> {
        // Nearly always there is nothing to do, and whether the ring runs shows when a chain is taken.
        if self.is_undisturbed() && !self.has_others() {
            return Some(None);
        }
        let mut until = None;
        loop {
            let begun = vring.unless_stopped(|| {
                let is_done = self.goes_on_here(&mut until);
                is_done.then(|| self.has_others().then(|| self.in_flight.hold()))
            });
            match begun? {
                Some(ticket) => return Some(ticket),
                None if self.is_given_up() => return None,
                None => thread::sleep(TAKE_BACK_EVERY),
            }
        }
    }

    /// Returns whether requests that another daemon has taken may have to be served.
    fn has_others(&self) -> bool {
        self.slots.is_some() && self.has_left.load(Ordering::Acquire) || self.in_flight.has_arrived()
    }

    /// Serves the requests that came with the state of a migration, once. The ring must run.
    pub(super) fn serve_arrived(self: &Arc<Self>, vring: &Vring, state: &mut WorkerState) {
        let heads = self.in_flight.take_arrived();
        if heads.is_empty() {
            return;
        }
        let Ok(used) = vring.queue_used_idx() else { return };
        if heads.len() != usize::from(vring.queue_next_avail().wrapping_sub(used)) {
            tracing::warn!(count = heads.len(), "requests that waited for a lock belong to another ring: dropped");
            return;
        }
        tracing::info!(count = heads.len(), "serving requests again that waited for a lock");
        heads.into_iter().for_each(|head| self.serve_chain(vring, state, head));
    }

    /// Serves what was left in flight, once. The ring must run.
    pub(super) fn serve_left(self: &Arc<Self>, vring: &Vring, state: &mut WorkerState) {
        let Some(slots) = &self.slots else { return };
        if !self.has_left.load(Ordering::Acquire) {
            return;
        }
        self.has_left.store(false, Ordering::Release);
        let left = slots.left();
        if left.is_empty() {
            return;
        }
        let Ok(used) = vring.queue_used_idx() else { return };
        let is_published = |left: &Left| matches!(left.stage, Stage::Publishing(_, index) if index != used);
        left.iter().filter(|left| is_published(left)).for_each(|left| slots.free(left.head));
        let left: Vec<_> = left.into_iter().filter(|left| !is_published(left)).collect();
        // Another number is outstanding on a ring that the driver has set up anew.
        if left.len() != usize::from(vring.queue_next_avail().wrapping_sub(used)) {
            tracing::warn!(count = left.len(), "requests in flight belong to another ring: they are dropped");
            return slots.clear();
        }
        tracing::info!(count = left.len(), "serving requests again that were in flight");
        for left in left {
            self.serve_again(vring, state, slots, left);
        }
        // The death may have come between a used entry and its notification, and this process has added none from
        // which it would know that one is due.
        if let Err(error) = vring.signal_used_queue() {
            tracing::warn!(%error, "cannot notify the guest");
        }
    }

    /// Frees the slots of requests that were dropped without an answer, because their ring was set up anew.
    pub(super) fn free_dropped(&self) {
        if let Some(slots) = &self.slots
            && !self.has_left.load(Ordering::Acquire)
            && self.in_flight.held() == 0
        {
            slots.left().iter().for_each(|left| slots.free(left.head));
        }
    }

    fn serve_again(self: &Arc<Self>, vring: &Vring, state: &mut WorkerState, slots: &QueueSlots, left: Left) {
        match left.stage {
            Stage::Answered(len) | Stage::Publishing(len, _) => {
                let (memory, logged) = (self.memory.memory(), (&*self.log, &self.memory));
                let view = MemoryView::new(&memory);
                if let Err(error) = vring.add_used_logged(left.head, len, &view, logged, Some(slots), || {}) {
                    self.break_ring(vring, &error);
                }
            }
            Stage::Taken => self.serve_chain(vring, state, left.head),
        }
    }

    /// Serves a chain that was taken off the ring by another daemon.
    fn serve_chain(self: &Arc<Self>, vring: &Vring, state: &mut WorkerState, head: u16) {
        let memory = self.memory.memory();
        let view = MemoryView::new(&memory);
        let (table, size) = {
            let ring = vring.get_ref();
            (GuestAddress(ring.get_queue().desc_table()), ring.get_queue().size())
        };
        match self.take(size, head) {
            Ok(ticket) => {
                let walk = Walk::new(&view, table, size, head);
                let chain = Chain::copy(head, walk, mem::take(state.descriptors()), ticket);
                self.serve((&memory, &view), vring, chain, state);
            }
            Err(error) => self.break_ring(vring, &error),
        }
    }
}
