//! The format of entries of page tables: Sv48. Source: RISC-V Privileged Architecture, sections 12.3 to 12.5.
//!
//! Entries are marked as accessed from the beginning. Some processors mark an entry dirty by themselves; on others, the
//! first store faults, and `dirty::mark_stored` does it.

use transom_guest::dax::entry::Order;

use crate::bare::entry::{Entry, Slot};

const VALID: u64 = 1 << 0;
const READABLE: u64 = 1 << 1;
const WRITABLE: u64 = 1 << 2;
const EXECUTABLE: u64 = 1 << 3;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
/// Ours to use: the page belongs to the mapping.
const COPY: u64 = 1 << 8;
/// The number of the page, in units of 4 KiB.
const NUMBER_SHIFT: u32 = 10;
const NUMBER_MASK: u64 = (1 << 44) - 1;

/// Returns the entry for a table below.
pub(in crate::bare) fn table(address: usize) -> u64 {
    (address as u64 >> 12) << NUMBER_SHIFT | VALID
}

/// Returns the entry that says this.
pub(in crate::bare) fn encode(entry: &Entry) -> u64 {
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let rights = READABLE | flag(entry.is_writable, WRITABLE);
    let marks = ACCESSED | flag(entry.is_dirty, DIRTY) | flag(entry.is_copy, COPY);
    (entry.physical >> 12) << NUMBER_SHIFT | VALID | rights | marks
}

/// Returns what an entry of a table of this level says.
pub(in crate::bare) fn decode(bits: u64, level: u32) -> Slot {
    let has = |bit| bits & bit != 0;
    let address = (bits >> NUMBER_SHIFT & NUMBER_MASK) << 12;
    if !has(VALID) {
        return Slot::Empty;
    }
    if !has(READABLE | WRITABLE | EXECUTABLE) {
        return Slot::Table(address as usize);
    }
    Slot::Page(Entry {
        order: if level == 0 { Order::Small } else { Order::Huge },
        physical: address,
        is_writable: has(WRITABLE),
        is_copy: has(COPY),
        is_dirty: has(DIRTY),
    })
}
