//! Dirty marks, where the processor does not make them: the first store to a writable entry faults.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{
    arch,
    tables::{self, CHANGING},
};

/// Entries that were marked so far.
static MARKED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of entries that were marked so far.
#[cfg(not(target_arch = "x86_64"))]
pub(super) fn marked() -> u64 {
    MARKED.load(Ordering::Relaxed)
}

/// Marks the entry for `address`, at which a store has faulted. Returns false if stores there are not allowed.
pub(super) fn mark_stored(address: usize) -> bool {
    let _changing = CHANGING.lock();
    let Some(entry) = tables::get(address).filter(|entry| entry.is_writable) else { return false };
    if !entry.is_dirty {
        tables::mark(address, entry);
        MARKED.fetch_add(1, Ordering::Relaxed);
    }
    // The processor may still know the entry as it was.
    arch::forget_here(address..address + 1);
    true
}
