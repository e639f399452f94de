//! Page tables for the addresses of mapped files: entries of 4 KiB and 2 MiB between 512 GiB and 1 TiB.
//!
//! Tables of the two lowest levels are created when they are needed and kept. The processor marks entries dirty by
//! itself, so each change is one store of a whole entry. Whoever takes a right away flushes the translation.

#![expect(unsafe_code, reason = "the processor reads page tables by address")]

use core::{ops::Range, ptr::NonNull};

use transom_guest::dax::{
    RANGE_LEN,
    entry::{Order, PAGE_LEN},
};

use super::{copy, page, processor};

/// The addresses of mapped files: what the second entry of the highest table stands for.
pub(super) const ADDRESSES: Range<usize> = 512 << 30..1024 << 30;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const DIRTY: u64 = 1 << 6;
/// An entry of the second lowest table that maps 2 MiB.
const HUGE: u64 = 1 << 7;
/// Ours to use: the page belongs to the mapping.
const COPY: u64 = 1 << 9;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Pages beyond which flushing everything is cheaper than flushing each.
const FLUSHED_PAGES_MAX: usize = 32;

/// What is mapped at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) order: Order,
    pub(super) physical: u64,
    pub(super) is_writable: bool,
    /// The page is a private copy.
    pub(super) is_copy: bool,
    /// The processor has stored there. Ignored when the entry is set.
    pub(super) is_dirty: bool,
}

/// Returns the entry for `address`.
pub(super) fn get(address: usize) -> Option<Entry> {
    let directory = load(slot(address, 1, false)?);
    let (order, bits) = match directory {
        0 => return None,
        huge if huge & HUGE != 0 => (Order::Huge, huge),
        _ => (Order::Small, load(slot(address, 0, false)?)),
    };
    let has = |bit| bits & bit != 0;
    has(PRESENT).then_some(Entry {
        order,
        physical: bits & ADDRESS,
        is_writable: has(WRITABLE),
        is_copy: has(COPY),
        is_dirty: has(DIRTY),
    })
}

/// Sets the entry for `address`, of which `entry.order` and `entry.physical` are multiples. Splits an entry of 2 MiB
/// for one of 4 KiB, and replaces entries of 4 KiB by one of 2 MiB. Returns `None` without memory for a table.
pub(super) fn set(address: usize, entry: Entry) -> Option<()> {
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let bits = entry.physical | PRESENT | flag(entry.is_writable, WRITABLE) | flag(entry.is_copy, COPY);
    match entry.order {
        Order::Huge => {
            let slot = slot(address, 1, true)?;
            let before = load(slot);
            store(slot, bits | HUGE);
            flush(address, RANGE_LEN as usize);
            free_table(before);
        }
        Order::Small => {
            split(address)?;
            store(slot(address, 0, true)?, bits);
            flush(address, PAGE_LEN as usize);
        }
    }
    Some(())
}

/// Maps a private, writable copy of the page at `from`, or a page of zeros, at `address`. Returns `None` if there is no
/// memory.
pub(super) fn set_copy(address: usize, from: Option<NonNull<u8>>) -> Option<()> {
    let copied = page::new()?;
    if let Some(from) = from {
        // SAFETY: the new page has no other user, and `from` is a page of the window, which the caller has pinned. The
        // copy is one instruction, for which stores by others meanwhile are no race of Rust's.
        unsafe { copy::page(copied, from) };
    }
    let entry =
        Entry { order: Order::Small, physical: copied as u64, is_writable: true, is_copy: true, is_dirty: false };
    let is_set = set(address, entry);
    if is_set.is_none() {
        // SAFETY: the page is new, and no entry refers to it.
        unsafe { page::free(copied) };
    }
    is_set
}

/// Removes the entry for `address`, and the page of a private copy.
pub(super) fn clear(address: usize) {
    let Some(entry) = get(address) else { return };
    let (level, len) = if entry.order == Order::Huge { (1, RANGE_LEN) } else { (0, PAGE_LEN) };
    let Some(slot) = slot(address, level, false) else { return };
    store(slot, 0);
    flush(address, len as usize);
    if entry.is_copy {
        // SAFETY: `set_copy` has allocated it, and the only entry for it is gone.
        unsafe { page::free(entry.physical as usize) };
    }
}

/// Removes the lowest table of the 2 MiB at `address`, in which no entry is left.
pub(super) fn clear_table(address: usize) {
    let Some(slot) = slot(address, 1, false) else { return };
    let before = load(slot);
    if before & HUGE == 0 {
        store(slot, 0);
        flush(address, RANGE_LEN as usize);
        free_table(before);
    }
}

/// Replaces an entry of 2 MiB by those of its pages.
fn split(address: usize) -> Option<()> {
    let slot = slot(address, 1, true)?;
    let huge = load(slot);
    if huge & HUGE == 0 {
        return Some(());
    }
    let table = page::new()?;
    for page in 0..512 {
        store(table + page * 8, (huge & !HUGE) + page as u64 * PAGE_LEN);
    }
    store(slot, table as u64 | PRESENT | WRITABLE);
    flush(address, RANGE_LEN as usize);
    Some(())
}

/// Returns the address of the entry for `address` in its table of this level, 0 for the lowest. Without `creates`,
/// returns `None` if there is no such table.
fn slot(address: usize, level: u32, creates: bool) -> Option<usize> {
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

fn free_table(entry: u64) {
    if entry & PRESENT != 0 && entry & HUGE == 0 {
        // SAFETY: only this module stores such entries, for tables from `page::new`, and the entry is gone.
        unsafe { page::free((entry & ADDRESS) as usize) };
    }
}

/// Forgets translations of `len` bytes at `address`.
fn flush(address: usize, len: usize) {
    if len / PAGE_LEN as usize > FLUSHED_PAGES_MAX {
        return processor::flush_all();
    }
    (address..address + len).step_by(PAGE_LEN as usize).for_each(processor::flush_page);
}

fn load(slot: usize) -> u64 {
    // SAFETY: `slot` is an entry of a table that `page::new` returned, or of the highest one, which are mapped at
    // their own addresses and have no other user; volatile, because the processor changes entries.
    unsafe { (slot as *const u64).read_volatile() }
}

fn store(slot: usize, entry: u64) {
    // SAFETY: as in `load`. What the entry maps is the caller's: memory of the window or of a private copy, at
    // addresses at which no Rust value lives.
    unsafe { (slot as *mut u64).write_volatile(entry) };
}
