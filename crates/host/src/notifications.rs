//! Changes of the share that a guest is told over its notification queue: a bounded queue, between the thread that
//! observes the share and the one that has the guest's buffers.
//!
//! Nobody waits for the guest. When the queue is full, it is emptied, and the guest is told that changes were lost.
//! Lock: its own, held briefly.

use std::{
    collections::VecDeque,
    io, mem,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::event::{EventfdFlags, eventfd};
use transom_wire::notification::Notification;

use crate::replay::Change;

/// Number of changes that may wait. Each takes about 100 bytes and its names, so a guest that takes none costs up to
/// 600 KiB.
const CHANGES_MAX: usize = 1024;

/// The changes that wait for the guest.
#[derive(Debug)]
pub struct Notifications {
    state: Mutex<State>,
    /// An eventfd that is written when something waits that did not before. Nobody reads it.
    ready: OwnedFd,
}

#[derive(Debug, Default)]
struct State {
    /// The driver has accepted the queue.
    is_wanted: bool,
    /// Counts sessions, whose nodeids differ.
    session: u64,
    /// Changes were lost before those that wait.
    has_lost: bool,
    /// Follows what waits.
    end: End,
    changes: VecDeque<Change>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    NotYet,
    Untold,
    Told,
}

/// The session for which a change is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionNumber(u64);

/// What the guest is told next. It is no longer in the queue.
#[derive(Debug)]
pub struct Taken {
    what: What,
    session: u64,
}

#[derive(Debug)]
enum What {
    Lost,
    Change(Change),
    Ended,
}

impl Notifications {
    /// Creates an empty queue of which nobody wants anything.
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn new() -> io::Result<Self> {
        let ready = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: Mutex::default(), ready })
    }

    /// Begins or ends to keep changes.
    pub fn want(&self, is_wanted: bool) {
        let mut state = self.lock();
        if state.is_wanted != is_wanted {
            state.is_wanted = is_wanted;
            self.forget(state);
        }
    }

    /// The guest's session begins or ends: what waits is of no use.
    pub fn session_changed(&self) {
        self.forget(self.lock());
    }

    /// Returns the session, or `None` if changes are not wanted.
    pub fn session(&self) -> Option<SessionNumber> {
        let state = self.lock();
        state.is_wanted.then_some(SessionNumber(state.session))
    }

    /// Adds a change, whose nodeids are of `session`.
    pub fn push(&self, SessionNumber(session): SessionNumber, change: Change) {
        self.update(|state| {
            if session != state.session {
                return;
            }
            if state.changes.len() >= CHANGES_MAX {
                state.lose();
            }
            state.changes.push_back(change);
        });
    }

    /// Changes were lost.
    pub fn lose(&self) {
        self.update(State::lose);
    }

    /// No more changes are seen. A guest that wants changes later is told so too.
    pub fn end(&self) {
        self.lock().end = End::Untold;
        self.update(State::lose);
        self.wake();
    }

    /// Takes what the guest is told next.
    pub fn take(&self) -> Option<Taken> {
        let mut state = self.lock();
        let what = if !state.is_wanted {
            return None;
        } else if mem::take(&mut state.has_lost) {
            What::Lost
        } else if let Some(change) = state.changes.pop_front() {
            What::Change(change)
        } else if state.end == End::Untold {
            state.end = End::Told;
            What::Ended
        } else {
            return None;
        };
        Some(Taken { what, session: state.session })
    }

    /// Puts back what the guest has no room for. Only the thread that took it may do so, before it takes more.
    pub fn put_back(&self, Taken { what, session }: Taken) {
        let mut state = self.lock();
        if session != state.session {
            return;
        }
        match what {
            What::Lost => state.has_lost = true,
            What::Change(_) if state.has_lost => {}
            // Others have filled its place meanwhile.
            What::Change(_) if state.changes.len() >= CHANGES_MAX => state.lose(),
            What::Change(change) => state.changes.push_front(change),
            What::Ended => state.end = End::Untold,
        }
    }

    /// Ends the session. What the next one is told at once wakes.
    fn forget(&self, mut state: MutexGuard<'_, State>) {
        state.forget();
        let is_ready = state.is_wanted && !state.is_empty();
        drop(state);
        if is_ready {
            self.wake();
        }
    }

    fn wake(&self) {
        // A full counter is an edge too.
        let _ = rustix::io::write(&self.ready, &1u64.to_ne_bytes());
    }

    fn update(&self, update: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        if !state.is_wanted {
            return;
        }
        let was_empty = state.is_empty();
        update(&mut state);
        let is_ready = was_empty && !state.is_empty();
        drop(state);
        if is_ready {
            self.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Notifications {
    /// Returns the descriptor on which each write, an edge, says that something waits again.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Taken {
    /// Returns it as the guest reads it.
    pub fn as_wire(&self) -> Notification<'_> {
        match &self.what {
            What::Lost => Notification::Lost,
            What::Change(change) => Notification::Change(change.as_wire()),
            What::Ended => Notification::Ended,
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        !self.has_lost && self.changes.is_empty() && self.end != End::Untold
    }

    fn lose(&mut self) {
        self.changes.clear();
        self.has_lost = true;
    }

    /// Ends the session. A new one is told again that there are no more changes.
    fn forget(&mut self) {
        self.session += 1;
        self.has_lost = false;
        self.changes = VecDeque::new();
        if self.end == End::Told {
            self.end = End::Untold;
        }
    }
}

#[cfg(test)]
#[path = "notifications_test.rs"]
mod notifications_test;
