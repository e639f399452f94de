//! Entries of page tables: where the one for an address is, and its bits.

#![expect(unsafe_code, reason = "the processor reads page tables by address")]

use core::ops::Range;

use super::{page, processor};

/// The addresses of mapped files: what the second entry of the highest table stands for.
pub(super) const ADDRESSES: Range<usize> = 512 << 30..1024 << 30;

pub(super) const PRESENT: u64 = 1 << 0;
pub(super) const WRITABLE: u64 = 1 << 1;
pub(super) const DIRTY: u64 = 1 << 6;
/// An entry of the second lowest table that maps 2 MiB.
pub(super) const HUGE: u64 = 1 << 7;
/// Ours to use: the page belongs to the mapping.
pub(super) const COPY: u64 = 1 << 9;
pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// What the processor changes in an entry.
pub(super) const MARKS: u64 = 1 << 5 | DIRTY;

/// Returns the address of the entry for `address` in its table of this level, 0 for the lowest. Without `creates`,
/// returns `None` if there is no such table.
pub(super) fn slot(address: usize, level: u32, creates: bool) -> Option<usize> {
    assert!(ADDRESSES.contains(&address), "{address:#x} is no address of a mapped file");
    let mut table = processor::root() as usize;
    for above in (level + 1..=3).rev() {
        let slot = table + index(address, above) * 8;
        let mut entry = load(slot);
        if entry & PRESENT == 0 || entry & HUGE != 0 {
            if !creates || entry & HUGE != 0 {
                return None;
            }
            entry = page::new()? as u64 | PRESENT | WRITABLE;
            store(slot, entry);
        }
        table = (entry & ADDRESS) as usize;
    }
    Some(table + index(address, level) * 8)
}

fn index(address: usize, level: u32) -> usize {
    address >> (12 + 9 * level) & 511
}

/// Returns the entry at `slot`.
pub(super) fn load(slot: usize) -> u64 {
    // SAFETY: `slot` is an entry of a table that `page::new` returned, or of the highest one, which are mapped at
    // their own addresses and have no other user; volatile, because processors change entries.
    unsafe { (slot as *const u64).read_volatile() }
}

/// Stores an entry. Called under [`CHANGING`](super::tables::CHANGING).
pub(super) fn store(slot: usize, entry: u64) {
    // SAFETY: as in `load`. What the entry maps is the caller's: memory of the window or of a private copy, at
    // addresses at which no Rust value lives.
    unsafe { (slot as *mut u64).write_volatile(entry) };
}
