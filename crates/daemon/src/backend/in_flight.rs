//! Requests of one queue that were taken off the ring and are not completed.
//!
//! [`InFlight`] counts them, so that a stop can wait for them, and records which chains the device holds: a driver that
//! offers one of these again has broken its ring. Locks: its own, held briefly. The chains' bits are atomic and need no
//! lock.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use transom_wire::Unique;

use super::vring::QUEUE_SIZE_MAX;

/// How often requests that wait for a lock are interrupted while a stop waits for them.
const WAKE_EVERY: Duration = Duration::from_millis(5);

/// The most requests of one queue in flight; further ones stay on the ring. Equal to QEMU's largest ring, so that
/// ordinary guests never reach it. A chain of 1024 descriptors takes 16 KiB: without this limit, a ring of 32768
/// entries could hold 512 MiB.
pub(super) const REQUESTS_MAX: u32 = 1024;

/// The requests in flight of one queue.
pub(super) struct InFlight {
    state: Mutex<State>,
    /// Notified when the count falls, if somebody waits.
    fell: Condvar,
    /// The chains that the device holds, one bit for each head. Set by the queue's worker, cleared by whichever thread
    /// puts the chain back, before it takes the ring's lock to publish the used entry. The worker holds that lock when
    /// it sets a bit, which orders the two.
    heads: Box<[AtomicU64]>,
}

#[derive(Default)]
struct State {
    count: u32,
    /// Number of threads in [`InFlight::drain`] and [`InFlight::wait_for_room`]. With none, nobody is notified, which
    /// would cost a system call for each request.
    watchers: u32,
    /// Requests that wait for a lock, or are about to.
    waiting: Vec<Unique>,
}

/// One request in flight, until it is dropped.
pub(super) struct Ticket(Arc<InFlight>);

/// One request that waits for a lock, until it is dropped.
pub(super) struct Waiting {
    in_flight: Arc<InFlight>,
    unique: Unique,
}

/// Error: the driver offered a chain that the device still holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("chain {0} is offered again before it is completed")]
pub(super) struct OfferedTwice(u16);

impl InFlight {
    /// Takes the chain `head`, which must be less than [`QUEUE_SIZE_MAX`], and counts its request until the ticket is
    /// dropped, even by a panic.
    pub(super) fn begin(self: &Arc<Self>, head: u16) -> Result<Ticket, OfferedTwice> {
        let (word, bit) = self.bit(head);
        if word.fetch_or(bit, Relaxed) & bit != 0 {
            return Err(OfferedTwice(head));
        }
        self.lock().count += 1;
        Ok(Ticket(self.clone()))
    }

    /// Marks the chain as returned: the driver may offer it again. Must be called before the driver can see the used
    /// entry.
    pub(super) fn give_back(&self, head: u16) {
        let (word, bit) = self.bit(head);
        word.fetch_and(!bit, Relaxed);
    }

    /// Registers `unique` as waiting for a lock until the returned value is dropped, so that a stop can interrupt it.
    pub(super) fn waits(self: &Arc<Self>, unique: Unique) -> Waiting {
        self.lock().waiting.push(unique);
        Waiting { in_flight: self.clone(), unique }
    }

    /// Returns the number of requests in flight.
    pub(super) fn count(&self) -> u32 {
        self.lock().count
    }

    /// Waits until fewer than [`REQUESTS_MAX`] are in flight.
    pub(super) fn wait_for_room(&self) {
        let mut state = self.lock();
        if state.count >= REQUESTS_MAX {
            state.watchers += 1;
            let has_none = |state: &mut State| state.count >= REQUESTS_MAX;
            state = self.fell.wait_while(state, has_none).unwrap_or_else(PoisonError::into_inner);
            state.watchers -= 1;
        }
    }

    /// Waits until no request is in flight. Nothing may be taken off the ring meanwhile.
    ///
    /// Calls `interrupt` repeatedly with the requests that wait for a lock, since one may begin to wait after a call.
    pub(super) fn drain(&self, interrupt: impl Fn(&[Unique])) {
        self.lock().watchers += 1;
        while self.count() != 0 {
            let waiting = self.lock().waiting.clone();
            interrupt(&waiting);
            let state = self.lock();
            let waited = self.fell.wait_timeout_while(state, WAKE_EVERY, |state| state.count != 0);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        self.lock().watchers -= 1;
        // Dropped chains are not given back; the ring starts over.
        self.heads.iter().for_each(|word| word.store(0, Relaxed));
    }

    fn bit(&self, head: u16) -> (&AtomicU64, u64) {
        (&self.heads[usize::from(head) / 64], 1 << (head % 64))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for InFlight {
    fn default() -> Self {
        let heads = (0..QUEUE_SIZE_MAX / 64).map(|_| AtomicU64::new(0)).collect();
        Self { state: Mutex::default(), fell: Condvar::new(), heads }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.count -= 1;
        if state.watchers > 0 {
            self.0.fell.notify_all();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.in_flight.lock();
        // A guest may use a number twice: remove only one of the two.
        if let Some(index) = state.waiting.iter().position(|&waiting| waiting == self.unique) {
            state.waiting.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_drain_ends_with_the_last_request_even_one_that_panics() {
        let in_flight = Arc::new(InFlight::default());
        for round in 0..200 {
            let ticket = in_flight.begin(0).unwrap();
            let request = thread::spawn(move || {
                let _ticket = ticket;
                assert!(round % 50 != 49, "a request panics, as this test wants");
            });
            in_flight.drain(|_| ());
            assert_eq!(in_flight.count(), 0);
            assert_eq!(request.join().is_err(), round % 50 == 49);
        }
    }

    #[test]
    fn a_drain_names_those_that_wait() {
        let in_flight = Arc::new(InFlight::default());
        let request = Mutex::new(Some((in_flight.begin(0), in_flight.waits(Unique(7)))));
        in_flight.drain(|waiting| {
            assert_eq!(waiting, [Unique(7)]);
            drop(request.lock().unwrap().take());
        });
        let again = in_flight.waits(Unique(8));
        drop((in_flight.waits(Unique(8)), again));
        assert!(in_flight.lock().waiting.is_empty());
    }

    #[test]
    fn a_chain_is_taken_again_once_it_is_given_back_or_its_ring_is_drained() {
        let in_flight = Arc::new(InFlight::default());
        let last = QUEUE_SIZE_MAX as u16 - 1;
        for head in [0, 63, 64, last] {
            let ticket = in_flight.begin(head).unwrap();
            assert_eq!(in_flight.begin(head).err(), Some(OfferedTwice(head)));
            assert_eq!(in_flight.count(), 1, "a chain that is refused does not count");
            in_flight.give_back(head);
            drop((in_flight.begin(head).unwrap(), ticket));
        }
        in_flight.drain(|_| ());
        assert!(in_flight.begin(last).is_ok());
    }

    #[test]
    fn whoever_waits_for_room_goes_on_with_the_first_that_ends() {
        let in_flight = Arc::new(InFlight::default());
        let mut tickets: Vec<_> = (0..REQUESTS_MAX as u16).map(|head| in_flight.begin(head).unwrap()).collect();
        let worker = thread::spawn({
            let in_flight = in_flight.clone();
            move || in_flight.wait_for_room()
        });
        while in_flight.lock().watchers == 0 {
            thread::yield_now();
        }
        assert!(!worker.is_finished());
        tickets.pop();
        worker.join().unwrap();
    }
}
