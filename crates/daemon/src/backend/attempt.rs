//! An attempt to transfer the session's state, which ends if the session goes on here.
//!
//! A front end stops the rings before it transfers the state. If it changes its mind, it starts the rings or resets the
//! device, whether the transfer has ended or not. From then on, a transfer that is still under way must not let go of
//! the session's locks, nor replace the session. Locks: that of [`Attempts`], then that of the attempt, within which
//! the last step of the transfer is made. The step may wait for requests that are being served, but not for a ring's
//! lock.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::event::{EventfdFlags, eventfd};

/// The attempts of one device, one after the other.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    latest: Mutex<Option<Arc<Attempt>>>,
    /// Whether `latest` was not given up. Set before a transfer starts, so that whoever finds it unset has nothing to
    /// give up.
    is_under_way: AtomicBool,
}

/// One attempt.
#[derive(Debug)]
pub(super) struct Attempt {
    is_given_up: Mutex<bool>,
    /// Readable once it is given up.
    end: OwnedFd,
}

impl Attempts {
    /// Begins an attempt. The one before has ended or was given up.
    pub(super) fn begin(&self) -> io::Result<Arc<Attempt>> {
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let attempt = Arc::new(Attempt { is_given_up: Mutex::new(false), end });
        *lock(&self.latest) = Some(attempt.clone());
        self.is_under_way.store(true, Ordering::Release);
        Ok(attempt)
    }

    /// Returns whether the latest attempt was not given up. It may have ended.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_under_way.load(Ordering::Acquire)
    }

    /// Cancels the attempt, if there is one. When this returns, the step of [`Attempt::unless_given_up`] has been made
    /// or never will be. Costs no more than a load if nothing was begun since the last time.
    pub(super) fn give_up(&self) {
        if !self.is_under_way.load(Ordering::Acquire) {
            return;
        }
        let latest = lock(&self.latest);
        if let Some(attempt) = &*latest {
            *lock(&attempt.is_given_up) = true;
            // A new eventfd's counter has room for 1, and for a second 1.
            let _ = rustix::io::write(&attempt.end, &1_u64.to_ne_bytes());
        }
        self.is_under_way.store(false, Ordering::Release);
    }
}

impl Attempt {
    /// Returns what `step` returns, or `None` without calling it if the attempt was given up.
    pub(super) fn unless_given_up<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        let is_given_up = lock(&self.is_given_up);
        (!*is_given_up).then(step)
    }

    /// Returns a descriptor that is readable once the attempt is given up.
    pub(super) fn end(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
