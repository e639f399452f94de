//! Tells the guest of changes: fills the buffers that the driver has put on the notification queue (virtio 1.3
//! §5.11.6).
//!
//! A buffer is taken only when something waits, and what waits stays in [`Notifications`], which is bounded, until
//! there is a buffer. So neither this thread nor the one that sees the changes waits for the driver, and a stop of the
//! ring finds no buffer taken.

use transom_host::{
    notifications::{Notifications, Taken},
    server::FileSystem,
};
use transom_wire::notification::BUF_LEN;
use vm_memory::GuestAddressSpace as _;

use super::{
    GuestRam,
    chain::{Buffers, Chain},
    in_flight::Ticket,
    next::Next,
    queue::Queue,
    view::MemoryView,
    vring::Vring,
    worker::{WorkerState, notify_driver},
};

impl<F: FileSystem + 'static> Queue<F> {
    /// Tells the driver what waits, as far as it has provided buffers. If it has too few, its next one will kick.
    pub(super) fn notify(&self, vring: &Vring, notifications: &Notifications, state: &mut WorkerState) {
        while !self.notify_in(&self.memory.memory(), vring, notifications, state) {}
    }

    /// Does that while the guest's memory is `memory`. Returns false if the front end has replaced it.
    fn notify_in(
        &self,
        memory: &GuestRam,
        vring: &Vring,
        notifications: &Notifications,
        state: &mut WorkerState,
    ) -> bool {
        let view = MemoryView::new(memory);
        loop {
            self.disable_kicks(&view, vring);
            // The buffers count as in flight until the driver is notified.
            let mut told: Option<Ticket> = None;
            let found = loop {
                let Some(next) = notifications.take() else { break None };
                match self.next(&view, vring, state.descriptors()) {
                    Next::Chain(chain) => {
                        if !self.tell(&view, vring, &chain, &next) {
                            notifications.put_back(next);
                        }
                        let (ticket, descriptors) = chain.into_parts();
                        *state.descriptors() = descriptors;
                        told.get_or_insert(ticket);
                    }
                    other => {
                        notifications.put_back(next);
                        break Some(other);
                    }
                }
            };
            if told.is_some() {
                notify_driver(&view, vring);
            }
            drop(told);
            match found {
                // Whatever comes next wakes this thread.
                None => return true,
                Some(Next::MemoryReplaced) => return false,
                Some(Next::Empty) => {}
                Some(Next::Stopped | Next::Chain(_)) => return true,
            }
            let has_more = self.enable_kicks(&view, vring);
            vring.mark_notification(&self.log, &self.memory);
            match has_more {
                Ok(true) => {}
                Err(Next::MemoryReplaced) => return false,
                Ok(false) | Err(_) => return true,
            }
        }
    }

    /// Returns the buffer `chain` to the driver with what it is told. Returns false if the buffer is no good: then it
    /// is empty.
    ///
    /// The driver must not provide buffers of less than `notify_buf_size` (§5.11.6.3), nor any that the device reads.
    fn tell(&self, view: &MemoryView<'_>, vring: &Vring, chain: &Chain, next: &Taken) -> bool {
        let mut buffers = Buffers::default();
        chain.resolve(view, &mut buffers);
        let room: usize = buffers.writable.iter().map(|slice| slice.len()).fold(0, usize::saturating_add);
        let is_good = !buffers.is_bad && buffers.readable.is_empty() && room >= BUF_LEN;
        let mut len = 0;
        if is_good {
            let mut bytes = [0; BUF_LEN];
            len = next.as_wire().write(&mut bytes);
            let mut left = &bytes[..len];
            for slice in &buffers.writable {
                let (now, later) = left.split_at(left.len().min(slice.len()));
                slice.copy_from(now);
                left = later;
            }
        }
        self.in_flight.give_back(chain.head);
        let logged = (&*self.log, &self.memory);
        let written = || chain.mark_written(view.memory());
        if let Err(error) = vring.add_used_logged(chain.head, len as u32, view, logged, None, written) {
            self.break_ring(vring, &error);
        }
        is_good
    }
}
