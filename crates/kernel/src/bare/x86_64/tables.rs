//! Page tables for the addresses of mapped files: entries of 4 KiB and 2 MiB between 512 GiB and 1 TiB.
//!
//! Tables of the two lowest levels are created when they are needed and kept. Processors mark entries dirty by
//! themselves, so each change is one store of a whole entry. Changes are made under [`CHANGING`]. One that takes a page
//! or a right away is complete when every processor has forgotten the translation (`shootdown`); before that, no page
//! or table is freed.

#![expect(unsafe_code, reason = "frees tables and pages that nothing refers to any more")]

use alloc::vec::Vec;
use core::{ops::Range, ptr::NonNull};

use transom_guest::dax::{
    RANGE_LEN,
    entry::{Order, PAGE_LEN},
};

use super::{
    copy, page, shootdown,
    walk::{ADDRESS, COPY, DIRTY, HUGE, MARKS, PRESENT, WRITABLE, load, slot, store},
};
use crate::bare::lock::Lock;

pub(super) use super::walk::ADDRESSES;

/// Held while the tables are changed, whichever mapping they are of: the upper ones are shared.
pub(super) static CHANGING: Lock<()> = Lock::new(());

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
            replace(slot, bits | HUGE, address..address + RANGE_LEN as usize);
            free_table(before);
        }
        Order::Small => {
            split(address)?;
            replace(slot(address, 0, true)?, bits, address..address + PAGE_LEN as usize);
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

/// Removes what is mapped at `addresses`, private copies only if `with_copies`. An entry of 2 MiB is removed as a
/// whole.
pub(super) fn remove(addresses: Range<usize>, with_copies: bool) {
    let mut copies = Vec::new();
    change(addresses, |entry| {
        let is_removed = with_copies || !entry.is_copy;
        if is_removed && entry.is_copy {
            copies.push(entry.physical as usize);
        }
        is_removed.then_some(0)
    });
    for copy in copies {
        // SAFETY: `set_copy` has allocated it, the only entry for it is gone, and so are the processors' translations.
        unsafe { page::free(copy) };
    }
}

/// Makes the next store to each page at `addresses` fault, except to private copies.
pub(super) fn protect(addresses: Range<usize>) {
    change(addresses, |entry| {
        let is_huge = entry.order == Order::Huge;
        (entry.is_writable && !entry.is_copy).then_some(entry.physical | PRESENT | if is_huge { HUGE } else { 0 })
    });
}

/// Stores what `change` makes of each entry at `addresses`, where it changes it. Returns when no processor uses the
/// former ones.
fn change(addresses: Range<usize>, mut change: impl FnMut(Entry) -> Option<u64>) {
    let mut changed: Option<Range<usize>> = None;
    let mut at = addresses.start;
    while at < addresses.end {
        let entry = get(at);
        let (level, len) = match entry {
            Some(Entry { order: Order::Huge, .. }) => (1, RANGE_LEN as usize),
            _ => (0, PAGE_LEN as usize),
        };
        let end = (at + 1).next_multiple_of(len);
        if let Some(bits) = entry.and_then(&mut change)
            && let Some(slot) = slot(at, level, false)
        {
            store(slot, bits);
            changed = Some(changed.map_or(at, |before| before.start)..end);
        }
        at = end;
    }
    if let Some(changed) = changed {
        shootdown::forget(changed);
    }
}

/// Removes the lowest table of the 2 MiB at `address`, in which no entry is left.
pub(super) fn clear_table(address: usize) {
    let Some(slot) = slot(address, 1, false) else { return };
    let before = load(slot);
    if before & HUGE == 0 {
        replace(slot, 0, address..address + RANGE_LEN as usize);
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
    replace(slot, table as u64 | PRESENT | WRITABLE, address..address + RANGE_LEN as usize);
    Some(())
}

fn free_table(entry: u64) {
    if entry & PRESENT != 0 && entry & HUGE == 0 {
        // SAFETY: only this module stores such entries, for tables from `page::new`, and the entry is gone.
        unsafe { page::free((entry & ADDRESS) as usize) };
    }
}

/// Replaces an entry for `addresses`. Returns when no processor uses the former one.
fn replace(slot: usize, entry: u64, addresses: Range<usize>) {
    let before = load(slot);
    if before & !MARKS == entry {
        // Another processor has served the same fault.
        return;
    }
    store(slot, entry);
    // Processors keep no translation of what is not present.
    if before & PRESENT != 0 {
        shootdown::forget(addresses);
    }
}
