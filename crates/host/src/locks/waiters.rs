//! Threads that wait for a lock, and how to end a wait early.
//!
//! A waiter is a thread inside a system call. To interrupt it, its entry is marked and its thread gets a signal, which
//! is repeated until the entry is gone, since a signal that arrives before the system call begins has no effect. One
//! helper thread sends the signals, so that neither INTERRUPT nor the end of a session blocks; it is started on first
//! use and ends with [`Waiters`].
//!
//! Lock order: one mutex, held across no system call but the one that sends the signal.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Duration,
};

use rustix::io::Errno;
use transom_wire::Unique;

use super::signal::{self, Target};

/// Maximum number of waiting requests. Each costs a thread. Beyond it, requests to wait return ENOLCK.
pub(crate) const WAITERS_MAX: usize = 256;

/// Maximum number of interrupts without a waiter. They arrived before their request began to wait, or after it ended,
/// and are kept in case of the former. Beyond it, the oldest is lost: an interrupt is only a request of the guest's,
/// and a guest that loses one has sent that many.
const EARLY_MAX: usize = WAITERS_MAX;

/// Pause between two signals to the same thread; a system call that is about to begin needs microseconds. Doubled up
/// to [`RESEND_PAUSE_MAX`], since some host file systems do not respond to signals at all.
const RESEND_PAUSE_MIN: Duration = Duration::from_micros(200);
const RESEND_PAUSE_MAX: Duration = Duration::from_millis(100);

/// All requests that wait.
#[derive(Debug)]
pub(super) struct Waiters {
    shared: Arc<Shared>,
    /// Sends signals; `None` until the first interrupt.
    sender: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Signalled when `state.has_interrupted` or `state.is_closed` becomes true.
    wake_sender: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next_id: u64,
    /// Keyed by an identifier of our own, since a guest may use a `unique` twice.
    waiting: HashMap<u64, Entry>,
    /// Interrupts without a waiter, oldest first.
    early: VecDeque<Unique>,
    is_closed: bool,
}

#[derive(Debug)]
struct Entry {
    unique: Unique,
    is_interrupted: bool,
    thread: Target,
}

impl Waiters {
    pub(super) fn new() -> Result<Self, Errno> {
        signal::install()?;
        Ok(Self { shared: Arc::default(), sender: Mutex::default() })
    }

    /// Runs `block`, a system call that waits, on this thread until it ends or is interrupted.
    ///
    /// # Errors
    ///
    /// EINTR after an interrupt, ENOLCK if [`WAITERS_MAX`] requests wait already; the errors of `block`.
    pub(super) fn wait(&self, unique: Unique, mut block: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
        // Dropped after the entry, so that no signal is sent to a thread that has blocked it again.
        let _unblocked = signal::unblock();
        let place = WaiterSlot::take(&self.shared, unique)?;
        loop {
            if place.is_interrupted() {
                return Err(Errno::INTR);
            }
            match block() {
                // The signal may be ours or another one; the entry has the answer.
                Err(Errno::INTR) => {}
                outcome => return outcome,
            }
        }
    }

    /// Interrupts the request `unique`, now or when it begins to wait.
    pub(super) fn interrupt(&self, unique: Unique) {
        let mut state = self.shared.lock();
        let mut has_found = false;
        for entry in state.waiting.values_mut().filter(|entry| entry.unique == unique) {
            entry.is_interrupted = true;
            has_found = true;
        }
        if !has_found {
            if state.early.contains(&unique) {
                return;
            }
            if state.early.len() == EARLY_MAX {
                state.early.pop_front();
            }
            state.early.push_back(unique);
            return;
        }
        drop(state);
        self.wake_sender();
    }

    /// Discards an interrupt of `unique` that found no waiter.
    pub(super) fn forget_interrupt(&self, unique: Unique) {
        self.shared.lock().early.retain(|&early| early != unique);
    }

    /// Interrupts all requests that wait now, and discards early interrupts, since a new session numbers its requests
    /// anew.
    pub(super) fn interrupt_all(&self) {
        let mut state = self.shared.lock();
        state.early.clear();
        if state.waiting.is_empty() {
            return;
        }
        state.waiting.values_mut().for_each(|entry| entry.is_interrupted = true);
        drop(state);
        self.wake_sender();
    }

    /// Returns the number of requests that wait.
    pub(super) fn count(&self) -> usize {
        self.shared.lock().waiting.len()
    }

    /// Wakes the helper thread; starts it if it is not running.
    fn wake_sender(&self) {
        let mut sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.is_none() {
            let shared = self.shared.clone();
            let started =
                std::thread::Builder::new().name("lock-interrupt".into()).spawn(move || shared.send_signals());
            match started {
                Ok(handle) => *sender = Some(handle),
                // Without a helper thread, send each waiter one signal from here; the next interrupt tries again.
                Err(error) => {
                    tracing::warn!(%error, "cannot start the thread that interrupts waiters");
                    self.shared.lock().signal_interrupted();
                }
            }
        }
        drop(sender);
        self.shared.wake_sender.notify_one();
    }
}

impl Drop for Waiters {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.wake_sender.notify_one();
        if let Some(sender) = self.sender.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // The thread does not panic; no request waits any more, since waiters borrow `self`.
            let _ = sender.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The helper thread's main loop.
    fn send_signals(&self) {
        let mut state = self.lock();
        let mut pause = RESEND_PAUSE_MIN;
        while !state.is_closed {
            state = if state.signal_interrupted() {
                let (state, _) = self.wake_sender.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
                pause = (pause * 2).min(RESEND_PAUSE_MAX);
                state
            } else {
                pause = RESEND_PAUSE_MIN;
                self.wake_sender.wait(state).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }
}

impl State {
    /// Sends a signal to each interrupted waiter that has not left; returns whether there was one.
    fn signal_interrupted(&self) -> bool {
        let mut interrupted = self.waiting.values().filter(|entry| entry.is_interrupted).peekable();
        let has_some = interrupted.peek().is_some();
        interrupted.for_each(|entry| entry.thread.interrupt());
        has_some
    }
}

/// A waiter's entry; removed on drop.
struct WaiterSlot<'a> {
    shared: &'a Shared,
    id: u64,
}

impl<'a> WaiterSlot<'a> {
    /// Registers this thread. If an interrupt of `unique` arrived early, the entry begins interrupted.
    fn take(shared: &'a Shared, unique: Unique) -> Result<Self, Errno> {
        let mut state = shared.lock();
        if state.waiting.len() >= WAITERS_MAX {
            return Err(Errno::NOLCK);
        }
        let early = state.early.iter().position(|&early| early == unique);
        let is_interrupted = early.and_then(|at| state.early.remove(at)).is_some();
        let id = state.next_id;
        state.next_id += 1;
        state.waiting.insert(id, Entry { unique, is_interrupted, thread: Target::this_thread() });
        Ok(Self { shared, id })
    }

    fn is_interrupted(&self) -> bool {
        self.shared.lock().waiting.get(&self.id).is_some_and(|entry| entry.is_interrupted)
    }
}

impl Drop for WaiterSlot<'_> {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(&self.id);
    }
}

#[cfg(test)]
#[path = "waiters_test.rs"]
mod waiters_test;
