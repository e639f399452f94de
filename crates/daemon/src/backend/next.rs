//! Takes the next chain off a ring.

use std::mem;

use transom_host::server::FileSystem;
use vhost_user_backend::{VringStateMutGuard, VringT};
use virtio_queue::{QueueOwnedT, QueueT};
use vm_memory::GuestAddress;

use super::{
    Memory,
    chain::{Chain, Descriptors},
    descriptors::Walk,
    in_flight::{OfferedTwice, Ticket},
    queue::Queue,
    view::MemoryView,
    vring::Vring,
};

/// A chain that the driver must not offer.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadHead {
    #[error("chain {head} is offered on a ring of {size} descriptors")]
    OutOfRange { head: u16, size: u16 },
    #[error(transparent)]
    OfferedTwice(#[from] OfferedTwice),
}

/// The next item on the ring.
pub(super) enum Next {
    Chain(Chain),
    Empty,
    /// The queue is stopped, disabled or broken.
    Stopped,
    /// The front end has replaced the guest's memory.
    MemoryReplaced,
}

impl<F: FileSystem + 'static> Queue<F> {
    /// Takes the next chain, whose descriptors are copied into `memory`. It counts as in flight from then on, before
    /// any thread can see the queue stopped.
    pub(super) fn next(&self, view: &MemoryView<'_>, vring: &Vring, memory: &mut Descriptors) -> Next {
        let mut ring = match self.lock_running(view, vring) {
            Ok(ring) => ring,
            Err(next) => return next,
        };
        // The ring was stopped and started again since `begin`, which has to come first.
        if !self.is_undisturbed() {
            drop(ring);
            vring.kick();
            return Next::Stopped;
        }
        // Most looks find nothing new, which the index alone shows.
        let queue = ring.get_queue();
        if queue.avail_ring() != 0 && available(queue, view) == Some(queue.next_avail()) {
            return Next::Empty;
        }
        let head = match ring.get_queue_mut().iter(view) {
            Ok(mut chains) => chains.next().map(|chain| chain.head_index()),
            Err(error) => {
                self.break_ring(vring, &error);
                return Next::Stopped;
            }
        };
        match head {
            Some(head) => match self.take(ring.get_queue().size(), head) {
                Ok(ticket) => {
                    if let Some(slots) = &self.slots {
                        slots.take(head, ring.get_queue().next_avail());
                    }
                    let queue = ring.get_queue();
                    let walk = Walk::new(view, GuestAddress(queue.desc_table()), queue.size(), head);
                    Next::Chain(Chain::copy(head, walk, mem::take(memory), ticket))
                }
                Err(error) => {
                    self.break_ring(vring, &error);
                    Next::Stopped
                }
            },
            // The index says that there is an entry, but it cannot be read: without this check the worker would spin.
            None if is_behind(ring.get_queue(), view) && !ring.get_queue().is_valid(view) => {
                self.break_ring(vring, &"a part of the ring is not in the guest's memory");
                Next::Stopped
            }
            None => Next::Empty,
        }
    }

    /// Has the driver kick again. Returns whether the ring has an entry that came before.
    ///
    /// # Errors
    /// What is to be done instead, if the ring is not served any more: as [`Queue::next`] returns it.
    pub(super) fn enable_kicks(&self, view: &MemoryView<'_>, vring: &Vring) -> Result<bool, Next> {
        let has_more = self.lock_running(view, vring)?.get_queue_mut().enable_notification(view);
        has_more.map_err(|error| {
            self.break_ring(vring, &error);
            Next::Stopped
        })
    }

    /// Has the driver leave out kicks. If kicks cannot be suppressed, they only cost time.
    pub(super) fn disable_kicks(&self, view: &MemoryView<'_>, vring: &Vring) {
        if vring.has_event_index() {
            return;
        }
        if let Ok(mut ring) = self.lock_running(view, vring) {
            let _ = ring.get_queue_mut().disable_notification(view);
        }
        vring.mark_notification(&self.log, &self.memory);
    }

    /// Locks the ring if it runs, and `view` is of the memory that it is in: the front end replaces the memory before
    /// it moves the ring, which takes the ring's lock.
    fn lock_running<'v>(
        &self,
        view: &MemoryView<'_>,
        vring: &'v Vring,
    ) -> Result<<Vring as VringStateMutGuard<'v, Memory>>::G, Next> {
        let ring = vring.get_mut();
        if self.is_given_up() || !ring.is_enabled() || !ring.get_queue().ready() {
            return Err(Next::Stopped);
        }
        if !self.is_current(view) {
            return Err(Next::MemoryReplaced);
        }
        Ok(ring)
    }

    /// Counts a chain of a ring of `size` descriptors as in flight.
    ///
    /// # Errors
    /// If the driver offers a chain that does not exist on this ring, or that the device still holds.
    pub(super) fn take(&self, size: u16, head: u16) -> Result<Ticket, BadHead> {
        if head >= size {
            return Err(BadHead::OutOfRange { head, size });
        }
        Ok(self.in_flight.begin(head)?)
    }

    /// Returns whether `view` is of the guest's present memory.
    fn is_current(&self, view: &MemoryView<'_>) -> bool {
        self.current.is(view.memory())
    }

    /// Returns whether the ring has an entry. Also true if the queue is stopped or the memory replaced, so that polling
    /// ends.
    pub(super) fn has_next(&self, view: &MemoryView<'_>, vring: &Vring) -> bool {
        let vring = vring.get_ref();
        if !self.is_current(view) {
            return true;
        }
        let queue = vring.get_queue();
        if !queue.ready() || !vring.is_enabled() || self.is_given_up() {
            return true;
        }
        is_behind(queue, view)
    }
}

/// Returns whether the driver has published entries that were not taken yet.
fn is_behind(queue: &virtio_queue::Queue, view: &MemoryView<'_>) -> bool {
    available(queue, view).is_some_and(|index| index != queue.next_avail())
}

/// Returns the index behind the last entry that the driver has published (virtio 1.3 §2.7.6), or `None` if that is not
/// in the guest's memory. Entries before it are visible afterwards.
fn available(queue: &virtio_queue::Queue, view: &MemoryView<'_>) -> Option<u16> {
    const INDEX_AT: u64 = 2;
    let at = queue.avail_ring().checked_add(INDEX_AT)?;
    view.load_u16(GuestAddress(at))
}
