//! Tables: where the entry for an address is, and access to it.

#![expect(unsafe_code, reason = "the processor reads page tables by address")]

use core::{
    ops::Range,
    sync::atomic::{Ordering, fence},
};

use super::{
    arch::{self, format},
    entry::Slot,
    geometry::{ROOT_LEVEL, index},
    page,
};

/// The addresses of mapped files. What is below is mapped to itself, by tables of its own.
pub(super) const ADDRESSES: Range<usize> = 512 << 30..1024 << 30;

/// The addresses at which windows are mapped as memory.
pub(super) const WINDOWS: Range<usize> = 1024 << 30..2048 << 30;

/// Returns the address of the entry for `address` in its table of this level, 0 for the lowest. Without `creates`,
/// returns `None` if there is no such table.
pub(super) fn slot(address: usize, level: u32, creates: bool) -> Option<usize> {
    let is_ours = ADDRESSES.contains(&address) || WINDOWS.contains(&address);
    assert!(is_ours, "{address:#x} is no address of a mapped file");
    let mut table = arch::root();
    for above in (level + 1..=ROOT_LEVEL).rev() {
        let slot = table + index(address, above) * 8;
        table = match format::decode(load(slot), above) {
            Slot::Table(table) => table,
            Slot::Page(_) => return None,
            Slot::Empty if !creates => return None,
            Slot::Empty => {
                let table = page::new()?;
                store(slot, format::table(table));
                table
            }
        };
    }
    Some(table + index(address, level) * 8)
}

/// Returns the entry at `slot`.
pub(super) fn load(slot: usize) -> u64 {
    // SAFETY: `slot` is an entry of a table that `page::new` returned, or of the highest one, which are mapped at
    // their own addresses and have no other user; volatile, because processors change entries.
    unsafe { (slot as *const u64).read_volatile() }
}

/// Stores an entry. Called under [`CHANGING`](super::tables::CHANGING).
pub(super) fn store(slot: usize, entry: u64) {
    store_all([(slot, entry)].into_iter());
}

/// Stores entries, likewise.
pub(super) fn store_all(entries: impl Iterator<Item = (usize, u64)>) {
    // A processor whose walk finds an entry must find what was written to the table or page it leads to.
    fence(Ordering::Release);
    for (slot, entry) in entries {
        // SAFETY: as in `load`. What the entry maps is the caller's: memory of the window or of a private copy, at
        // addresses at which no Rust value lives.
        unsafe { (slot as *mut u64).write_volatile(entry) };
    }
    arch::publish();
}
