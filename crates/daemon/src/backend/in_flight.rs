//! Requests of one queue that were taken off the ring and are not completed.
//!
//! [`InFlight`] counts them, so that a stop can wait for them, and records which chains the device holds: a driver that
//! offers one of these again has broken its ring. A request that waits for a lock does not hold up a stop: it is set
//! aside until its ring starts again. Locks: its own, held briefly. The chains' bits are atomic and need no lock.

use std::{
    mem,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    time::Duration,
};

use transom_wire::Unique;

/// The largest queue (virtio 1.3 §2.7).
pub(super) const QUEUE_SIZE_MAX: usize = 32768;

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
    /// Notified when requests that are set aside go on.
    went_on: Condvar,
    /// The chains that the device holds, one bit for each head. Set by the queue's worker, cleared by whichever thread
    /// puts the chain back, before it takes the ring's lock to publish the used entry. The worker holds that lock when
    /// it sets a bit, which orders the two.
    heads: Box<[AtomicU64]>,
    /// Whether chains have arrived: a worker looks here first, without the lock.
    has_arrived: AtomicBool,
}

#[derive(Default)]
struct State {
    count: u32,
    /// A request was taken since [`InFlight::take_has_begun`].
    has_begun: bool,
    /// Number of threads in [`InFlight::drain`], [`InFlight::settle`] and [`InFlight::wait_for_room`]. With none,
    /// nobody is notified, which would cost a system call for each request.
    watchers: u32,
    /// Requests that wait for a lock, or are about to.
    waiting: Vec<Unique>,
    /// A stop is waiting: interrupted requests are to be set aside.
    is_stopping: bool,
    /// The chains whose requests are set aside; `count` is without them.
    set_aside: Vec<u16>,
    /// Chains that another daemon has taken and not answered, until the ring runs.
    arrived: Vec<u16>,
    /// Number of times that those set aside went on, or were given up.
    rounds: u64,
    /// The round in which those set aside were last given up.
    given_up_in: u64,
}

/// What becomes of an interrupted request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Interrupted {
    /// No stop interrupted it: it is answered.
    Answer,
    /// Its ring was stopped and has started again: it is served anew.
    ServeAgain,
    /// Its ring starts over: it is not answered.
    Drop,
}

/// One request in flight, or other work that a stop waits for, until it is dropped.
pub(super) struct Ticket(Arc<InFlight>);

/// One request that waits for a lock, until it is dropped.
pub(super) struct Waiting {
    in_flight: Arc<InFlight>,
    unique: Unique,
    head: u16,
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
        let mut state = self.lock();
        state.count += 1;
        state.has_begun = true;
        drop(state);
        Ok(Ticket(self.clone()))
    }

    /// Counts work as in flight that is not a request, until the ticket is dropped.
    pub(super) fn hold(self: &Arc<Self>) -> Ticket {
        self.lock().count += 1;
        Ticket(self.clone())
    }

    /// Returns whether a request was taken since the last call.
    pub(super) fn take_has_begun(&self) -> bool {
        mem::take(&mut self.lock().has_begun)
    }

    /// Marks the chain as returned: the driver may offer it again. Must be called before the driver can see the used
    /// entry.
    pub(super) fn give_back(&self, head: u16) {
        let (word, bit) = self.bit(head);
        word.fetch_and(!bit, Relaxed);
    }

    /// Registers `unique`, whose chain is `head`, as waiting for a lock until the returned value is dropped, so that a
    /// stop can interrupt it.
    pub(super) fn waits(self: &Arc<Self>, unique: Unique, head: u16) -> Waiting {
        self.lock().waiting.push(unique);
        Waiting { in_flight: self.clone(), unique, head }
    }

    /// Returns the number of requests in flight.
    pub(super) fn count(&self) -> u32 {
        self.lock().count
    }

    /// Returns the number of requests that have no answer, also of those that are set aside or have arrived.
    pub(super) fn held(&self) -> u32 {
        let state = self.lock();
        state.count + (state.set_aside.len() + state.arrived.len()) as u32
    }

    /// Returns the chains of the requests that are set aside or have arrived.
    pub(super) fn waiting_heads(&self) -> Vec<u16> {
        let state = self.lock();
        [&state.set_aside[..], &state.arrived].concat()
    }

    /// Notes chains that another daemon has taken and not answered.
    pub(super) fn arrive(&self, heads: Vec<u16>) {
        let mut state = self.lock();
        self.has_arrived.store(!heads.is_empty(), Release);
        state.arrived = heads;
    }

    /// Returns whether chains have arrived that were not taken since.
    pub(super) fn has_arrived(&self) -> bool {
        !self.lock().arrived.is_empty()
    }

    /// Returns the chains that have arrived, once.
    pub(super) fn take_arrived(&self) -> Vec<u16> {
        if !self.has_arrived.load(Acquire) {
            return Vec::new();
        }
        let mut state = self.lock();
        self.has_arrived.store(false, Release);
        mem::take(&mut state.arrived)
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

    /// Waits until no request is in flight, but no longer than `time`. Returns how many are in flight then.
    pub(super) fn settle(&self, time: Duration) -> u32 {
        let mut state = self.lock();
        state.watchers += 1;
        let settled = self.fell.wait_timeout_while(state, time, |state| state.count != 0);
        (state, _) = settled.unwrap_or_else(PoisonError::into_inner);
        state.watchers -= 1;
        state.count
    }

    /// Waits until no request is in flight. Nothing may be taken off the ring meanwhile.
    ///
    /// Calls `interrupt` repeatedly with the requests that wait for a lock, since one may begin to wait after a call.
    pub(super) fn drain(&self, interrupt: impl Fn(&[Unique])) {
        self.wait_for_none(interrupt);
        // Dropped chains are not given back; the ring starts over.
        self.heads.iter().for_each(|word| word.store(0, Relaxed));
    }

    /// Like [`InFlight::drain`], but requests that wait for a lock are set aside until [`InFlight::resume`] or
    /// [`InFlight::abandon`]. The device keeps their chains.
    pub(super) fn drain_setting_aside(&self, interrupt: impl Fn(&[Unique])) {
        self.lock().is_stopping = true;
        self.wait_for_none(interrupt);
        let mut state = self.lock();
        state.is_stopping = false;
        if state.set_aside.is_empty() {
            self.heads.iter().for_each(|word| word.store(0, Relaxed));
        }
    }

    /// Lets requests that are set aside go on, because their ring starts with `outstanding` chains that were taken and
    /// not returned. If that is another number than was set aside, the driver has set up a new ring, and they are given
    /// up.
    pub(super) fn resume(&self, outstanding: u16) {
        let mut state = self.lock();
        if state.set_aside.is_empty() {
            return;
        }
        if state.set_aside.len() != usize::from(outstanding) {
            state.given_up_in = state.rounds + 1;
            self.heads.iter().for_each(|word| word.store(0, Relaxed));
        }
        self.go_on(&mut state);
    }

    /// Gives up requests that are set aside, because their ring starts over. They count as in flight until their
    /// threads have noticed.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.given_up_in = state.rounds + 1;
        state.arrived.clear();
        self.has_arrived.store(false, Release);
        self.go_on(&mut state);
    }

    fn go_on(&self, state: &mut State) {
        state.rounds += 1;
        state.count += mem::take(&mut state.set_aside).len() as u32;
        self.went_on.notify_all();
    }

    fn wait_for_none(&self, interrupt: impl Fn(&[Unique])) {
        self.lock().watchers += 1;
        while self.count() != 0 {
            let waiting = self.lock().waiting.clone();
            interrupt(&waiting);
            let state = self.lock();
            let waited = self.fell.wait_timeout_while(state, WAKE_EVERY, |state| state.count != 0);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        self.lock().watchers -= 1;
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
        let has_arrived = AtomicBool::new(false);
        Self { state: Mutex::default(), fell: Condvar::new(), went_on: Condvar::new(), heads, has_arrived }
    }
}

impl Waiting {
    /// Returns what becomes of the request, which was interrupted. Blocks while its ring is stopped.
    ///
    /// If it is to be served again, calls `forget` with its number first, since the stop may have left an interrupt
    /// that came too late.
    pub(super) fn interrupted(&self, forget: impl FnOnce(Unique)) -> Interrupted {
        let mut state = self.in_flight.lock();
        if !state.is_stopping {
            return Interrupted::Answer;
        }
        state.remove_waiting(self.unique);
        state.count -= 1;
        state.set_aside.push(self.head);
        self.in_flight.fell.notify_all();
        let round = state.rounds;
        let is_set_aside = |state: &mut State| state.rounds == round;
        let waited = self.in_flight.went_on.wait_while(state, is_set_aside);
        state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.given_up_in > round {
            return Interrupted::Drop;
        }
        drop(state);
        forget(self.unique);
        self.in_flight.lock().waiting.push(self.unique);
        Interrupted::ServeAgain
    }
}

impl State {
    fn remove_waiting(&mut self, unique: Unique) {
        // A guest may use a number twice: remove only one of the two.
        if let Some(index) = self.waiting.iter().position(|&waiting| waiting == unique) {
            self.waiting.swap_remove(index);
        }
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
        self.in_flight.lock().remove_waiting(self.unique);
    }
}

#[cfg(test)]
#[path = "in_flight_test.rs"]
mod in_flight_test;
