//! Memory for the descriptors of chains, which travels with a request that is handed to another thread.
//!
//! A worker has memory for one chain of its own. When it hands that on, it takes another here, where the thread that
//! finishes the request leaves it.

use std::sync::{Mutex, PoisonError};

use super::chain::Descriptors;

/// Kept for requests that are handed on: as many as may wait at a time without an allocation. They have at most 1 MiB.
const SPARES_MAX: usize = 64;

/// Memory that no chain uses. Protected by its own lock, within which nothing else is taken.
#[derive(Default)]
pub(super) struct Spares(Mutex<Vec<Descriptors>>);

impl Spares {
    /// Takes memory for a chain; memory that is yet to be allocated if there is no other.
    pub(super) fn take(&self) -> Descriptors {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps memory for another chain, unless there is enough of it.
    pub(super) fn keep(&self, descriptors: Descriptors) {
        let mut spares = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spares.len() < SPARES_MAX {
            spares.push(descriptors);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_kept_than_the_limit() {
        let spares = Spares::default();
        (0..2 * SPARES_MAX).for_each(|_| spares.keep(Descriptors::default()));
        assert_eq!(spares.0.lock().unwrap().len(), SPARES_MAX);
    }
}
