//! How requests raised the version table when they were tried, until the pool serves them.
//!
//! A WRITE that must not block may have written a part before it goes to the pool, so the attempt is stamped. With what
//! is kept here, the reply's trailer says that both stamps are of the request. No other operation changes something, is
//! tried, and goes to the pool.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use transom_wire::own_changes::Trailer;

use crate::server::{BlockingMode, Changing};

/// The most attempts that are kept: as many as a queue has requests in flight. Those that the pool never serves stay
/// until the session ends.
const ATTEMPTS_MAX: usize = 1024;

/// The attempts of a session, by the identifiers of their requests. A lock is held for a moment, with nothing under it.
#[derive(Debug, Default)]
pub(super) struct Attempts(Mutex<HashMap<u64, Trailer>>);

impl Attempts {
    /// Keeps how an attempt raised the table. Without room, the guest takes the attempt's change for another's.
    pub(super) fn keep(&self, request: &Changing<'_>, raised: Trailer) {
        let mut attempts = self.lock();
        if request.blocking == BlockingMode::MustNotBlock && attempts.len() < ATTEMPTS_MAX {
            attempts.insert(request.unique.0, raised);
        }
    }

    /// Returns how the attempt of a request raised the table, if it is served after one.
    pub(super) fn take(&self, request: &Changing<'_>) -> Trailer {
        let earlier = match request.blocking {
            BlockingMode::MustNotBlock => None,
            BlockingMode::MayBlock => self.lock().remove(&request.unique.0),
        };
        earlier.unwrap_or_default()
    }

    /// Forgets all.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Trailer>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
