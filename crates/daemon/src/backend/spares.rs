//! Spare memory for descriptors.
//!
//! A worker owns memory for one chain. A request that is handed to another thread takes that memory along. The worker
//! then takes another piece from here, where the thread that finishes the request leaves its own.

use std::sync::{Mutex, PoisonError};

use super::chain::Descriptors;

/// The most pieces kept: this many requests may wait at a time without an allocation. Together they have at most 1 MiB.
const SPARES_MAX: usize = 64;

/// Memory that no chain uses. Protected by its own lock, within which no other is taken.
#[derive(Default)]
pub(super) struct Spares(Mutex<Vec<Descriptors>>);

impl Spares {
    /// Returns memory for a chain, or empty memory if there is no spare.
    pub(super) fn take(&self) -> Descriptors {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Keeps memory for another chain, unless there is enough.
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
