//! Dirty marks, where the processor does not make them: the first store to a writable entry faults.

use core::sync::atomic::{AtomicU64, Ordering};

use transom_guest::dax::entry::Order;

use super::{
    arch::{self, format},
    entry::Entry,
    tables::{self, CHANGING},
    walk::{slot, store},
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
    let level = u32::from(entry.order == Order::Huge);
    if let Some(slot) = slot(address, level, false).filter(|_| !entry.is_dirty) {
        store(slot, format::encode(&Entry { is_dirty: true, ..entry }));
        MARKED.fetch_add(1, Ordering::Relaxed);
    }
    // The processor may still know the entry as it was.
    arch::forget_here(address..address + 1);
    true
}
