//! The format of entries of page tables. Source: Intel SDM volume 3, section 4.5.

use transom_guest::dax::entry::Order;

use crate::bare::entry::{Entry, Slot};

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
/// The processor has used the entry. It sets this and `DIRTY` by itself.
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// An entry of the second lowest table that maps 2 MiB.
const HUGE: u64 = 1 << 7;
/// Ours to use: the page belongs to the mapping.
const COPY: u64 = 1 << 9;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Returns the entry for a table below.
pub(in crate::bare) fn table(address: usize) -> u64 {
    address as u64 | PRESENT | WRITABLE
}

/// Returns the entry that says this.
pub(in crate::bare) fn encode(entry: &Entry) -> u64 {
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let order = flag(entry.order == Order::Huge, HUGE);
    let marks = ACCESSED | flag(entry.is_dirty, DIRTY);
    entry.physical | PRESENT | flag(entry.is_writable, WRITABLE) | flag(entry.is_copy, COPY) | order | marks
}

/// Returns what an entry of a table of this level says.
pub(in crate::bare) fn decode(bits: u64, level: u32) -> Slot {
    let has = |bit| bits & bit != 0;
    match level {
        _ if !has(PRESENT) => Slot::Empty,
        1.. if !has(HUGE) => Slot::Table((bits & ADDRESS) as usize),
        _ => Slot::Page(Entry {
            order: if level == 0 { Order::Small } else { Order::Huge },
            physical: bits & ADDRESS,
            is_writable: has(WRITABLE),
            is_copy: has(COPY),
            is_dirty: has(DIRTY),
        }),
    }
}
