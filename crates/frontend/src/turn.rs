//! The one thread of a front end that has one: whoever has the turn is at work, and all else waits.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

/// Taken for each request and each answer; a thread that has it may take it again.
#[derive(Debug, Default)]
pub struct Turn {
    /// Who has it, and how often.
    owner: Mutex<Option<(ThreadId, usize)>>,
    is_free: Condvar,
}

/// Gives the turn back on drop.
pub struct Taken<'t>(&'t Turn);

impl Turn {
    /// Waits for the turn.
    pub fn take(&self) -> Taken<'_> {
        let me = thread::current().id();
        let mut owner = self.lock();
        loop {
            match *owner {
                None => *owner = Some((me, 1)),
                Some((thread, depth)) if thread == me => *owner = Some((me, depth + 1)),
                Some(_) => {
                    owner = self.is_free.wait(owner).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
            }
            return Taken(self);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(ThreadId, usize)>> {
        self.owner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut owner = self.0.lock();
        *owner = owner.and_then(|(thread, depth)| (depth > 1).then(|| (thread, depth - 1)));
        self.0.is_free.notify_one();
    }
}
