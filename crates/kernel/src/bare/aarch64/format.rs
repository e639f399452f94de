//! The format of entries of page tables: stage 1, with each of the granules. Source: Arm ARM, section D8.3.
//!
//! 2 MiB are a block where pages have 4 KiB, and a group of pages with the contiguous hint otherwise.
//!
//! An entry that may be stored to begins as read-only, with the mark DBM. A processor with hardware dirty state then
//! makes it writable by the first store; on others, that store faults, and `dirty::mark_stored` does it.

use transom_guest::dax::entry::Order;

use crate::bare::{
    entry::{Entry, Slot},
    geometry::HUGE_LEVEL,
};

const VALID: u64 = 1 << 0;
/// A table in an entry of the upper levels, a page in one of the lowest; otherwise a block.
const TABLE_OR_PAGE: u64 = 1 << 1;
/// Memory, cached: `boot` sets up attribute 1.
const MEMORY: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
/// Dirty bit modifier: `READ_ONLY` says that nobody has stored there yet.
const DBM: u64 = 1 << 51;
/// The page is one of an aligned 2 MiB, all of which are mapped alike.
const CONTIGUOUS: u64 = 1 << 52;
const NO_EXECUTION: u64 = 0b11 << 53;
/// Ours to use: the page belongs to the mapping.
const COPY: u64 = 1 << 55;
const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// Returns the entry for a table below.
pub(in crate::bare) fn table(address: usize) -> u64 {
    address as u64 | VALID | TABLE_OR_PAGE
}

/// Returns the entry that says this.
pub(in crate::bare) fn encode(entry: &Entry) -> u64 {
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let order = match (entry.order, HUGE_LEVEL) {
        (Order::Small, _) => TABLE_OR_PAGE,
        (Order::Huge, 0) => TABLE_OR_PAGE | CONTIGUOUS,
        (Order::Huge, _) => 0,
    };
    let rights = flag(entry.is_writable, DBM) | flag(!(entry.is_writable && entry.is_dirty), READ_ONLY);
    let always = VALID | MEMORY | INNER_SHAREABLE | ACCESSED | NO_EXECUTION;
    entry.physical | always | order | rights | flag(entry.is_copy, COPY)
}

/// Returns what an entry of a table of this level says.
pub(in crate::bare) fn decode(bits: u64, level: u32) -> Slot {
    let has = |bit| bits & bit != 0;
    match level {
        _ if !has(VALID) => Slot::Empty,
        1.. if has(TABLE_OR_PAGE) => Slot::Table((bits & ADDRESS) as usize),
        _ => Slot::Page(Entry {
            order: if level == 0 && !has(CONTIGUOUS) { Order::Small } else { Order::Huge },
            physical: bits & ADDRESS,
            is_writable: has(DBM),
            is_copy: has(COPY),
            is_dirty: has(DBM) && !has(READ_ONLY),
        }),
    }
}
