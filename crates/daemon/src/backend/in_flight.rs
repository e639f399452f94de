//! Counts a queue's requests between their popping and their completion, so that a stop can wait for them.

use std::{
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use transom_wire::Unique;

/// How often those that wait for a lock are woken while a stop waits for them.
const WAKE_EVERY: Duration = Duration::from_millis(5);

/// The requests in flight of one queue.
#[derive(Default)]
pub(super) struct InFlight {
    state: Mutex<State>,
    is_zero: Condvar,
}

#[derive(Default)]
struct State {
    count: u32,
    /// Threads in [`InFlight::drain`]. Without one nobody is notified, which would be a system call for each request.
    drainers: u32,
    /// Requests that wait for a lock, or will presently.
    waiting: Vec<Unique>,
}

/// One request in flight, until it is dropped.
pub(super) struct Ticket(Arc<InFlight>);

/// One request that waits for a lock, until it is dropped.
pub(super) struct Waiting {
    in_flight: Arc<InFlight>,
    unique: Unique,
}

impl InFlight {
    /// Counts a request until the ticket is dropped, be it by a panic.
    pub(super) fn begin(self: &Arc<Self>) -> Ticket {
        self.lock().count += 1;
        Ticket(self.clone())
    }

    /// Lets a stop know of `unique` until what is returned is dropped.
    pub(super) fn waits(self: &Arc<Self>, unique: Unique) -> Waiting {
        self.lock().waiting.push(unique);
        Waiting { in_flight: self.clone(), unique }
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.lock().count
    }

    /// Waits until no request is in flight.
    ///
    /// Calls `interrupt` time and again with those that wait for a lock, since one may begin to wait after a call.
    pub(super) fn drain(&self, interrupt: impl Fn(&[Unique])) {
        self.lock().drainers += 1;
        while self.count() != 0 {
            let waiting = self.lock().waiting.clone();
            interrupt(&waiting);
            let state = self.lock();
            let waited = self.is_zero.wait_timeout_while(state, WAKE_EVERY, |state| state.count != 0);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        self.lock().drainers -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.count -= 1;
        if state.count == 0 && state.drainers > 0 {
            self.0.is_zero.notify_all();
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut state = self.in_flight.lock();
        // A guest may use a number twice: one of the two goes.
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
            let ticket = in_flight.begin();
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
        let request = Mutex::new(Some((in_flight.begin(), in_flight.waits(Unique(7)))));
        in_flight.drain(|waiting| {
            assert_eq!(waiting, [Unique(7)]);
            drop(request.lock().unwrap().take());
        });
        let again = in_flight.waits(Unique(8));
        drop((in_flight.waits(Unique(8)), again));
        assert!(in_flight.lock().waiting.is_empty());
    }
}
