//! A lock that models a single-threaded front end: its holder works, and everything else waits.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, ThreadId},
};

/// Taken for each request and each reply. The holding thread may take it again.
#[derive(Debug, Default)]
pub struct Turn {
    /// The holding thread, and how many times it has taken the turn.
    owner: Mutex<Option<(ThreadId, usize)>>,
    is_free: Condvar,
}

/// Releases the turn on drop.
pub struct Taken<'t>(&'t Turn);

impl Turn {
    /// Takes the turn, waiting for it if necessary.
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
