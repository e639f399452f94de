//! Operations that block until a test lets them continue.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Where operations that may wait are held up.
#[derive(Default)]
pub(super) struct Stall {
    state: Mutex<Stalled>,
    changed: Condvar,
}

/// What is held up, and was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stalled {
    /// Operations that may wait are held up.
    pub is_on: bool,
    /// Operations held up now.
    pub now: usize,
    /// Operations that may wait, and were begun.
    pub begun: usize,
    /// Calls that wake all that wait: somebody waits for the end of what has begun.
    pub wakes: usize,
}

impl Stall {
    /// Holds the calling operation up while [`Stalled::is_on`].
    pub(super) fn pass(&self) {
        let mut state = self.lock();
        state.begun += 1;
        state.now += 1;
        let mut state = self.changed.wait_while(state, |state| state.is_on).unwrap_or_else(PoisonError::into_inner);
        state.now -= 1;
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut Stalled)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    pub(super) fn get(&self) -> Stalled {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, Stalled> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
