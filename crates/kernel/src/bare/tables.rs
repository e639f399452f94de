//! Page tables for the addresses of mapped files, with entries of 4 KiB and 2 MiB, and for windows.
//!
//! Tables of the two lowest levels are created when they are needed and kept. Processors mark entries dirty by
//! themselves, or fault where they cannot (`dirty`), so each change is one store of a whole entry. Changes are
//! made under [`CHANGING`]. One that takes a page or a right away is complete when every processor has forgotten the
//! translation (`arch::forget`); before that, no page or table is freed. Where one thing takes the place of another,
//! the entry is empty in between, as Arm demands: a processor never keeps both. What faults meanwhile waits for
//! [`CHANGING`], and is repeated.

#![expect(unsafe_code, reason = "frees tables and pages that nothing refers to any more")]

use alloc::vec::Vec;
use core::{ops::Range, ptr::NonNull};

use transom_guest::dax::{RANGE_LEN, entry::Order};

use super::{
    arch::{self, format},
    copy,
    entry::{EMPTY, Entry, Slot},
    lock::Lock,
    page,
    platform::PAGE_LEN,
    walk::{load, slot, store},
};

pub(super) use super::walk::ADDRESSES;

/// Held while the tables are changed, whichever mapping they are of: the upper ones are shared.
pub(super) static CHANGING: Lock<()> = Lock::new(());

/// Returns the entry for `address`.
pub(super) fn get(address: usize) -> Option<Entry> {
    let found = match format::decode(load(slot(address, 1, false)?), 1) {
        Slot::Table(_) => format::decode(load(slot(address, 0, false)?), 0),
        found => found,
    };
    if let Slot::Page(entry) = found { Some(entry) } else { None }
}

/// Sets the entry for `address`, of which `entry.order` and `entry.physical` are multiples. Splits an entry of 2 MiB
/// for one of 4 KiB, and replaces entries of 4 KiB by one of 2 MiB. Returns `None` without memory for a table.
pub(super) fn set(address: usize, entry: Entry) -> Option<()> {
    match entry.order {
        Order::Huge => {
            let slot = slot(address, 1, true)?;
            let before = format::decode(load(slot), 1);
            replace(slot, 1, Slot::Page(entry), address..address + RANGE_LEN as usize);
            free_table(before);
        }
        Order::Small => {
            split(address)?;
            replace(slot(address, 0, true)?, 0, Slot::Page(entry), address..address + PAGE_LEN as usize);
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
        is_removed.then_some(EMPTY)
    });
    for copy in copies {
        // SAFETY: `set_copy` has allocated it, the only entry for it is gone, and so are the processors' translations.
        unsafe { page::free(copy) };
    }
}

/// Makes the next store to each page at `addresses` fault, except to private copies.
pub(super) fn protect(addresses: Range<usize>) {
    change(addresses, |entry| {
        let is_taken = entry.is_writable && !entry.is_copy;
        is_taken.then(|| format::encode(&Entry { is_writable: false, is_dirty: false, ..entry }))
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
        arch::forget(changed);
    }
}

/// Removes the lowest table of the 2 MiB at `address`, in which no entry is left.
pub(super) fn clear_table(address: usize) {
    let Some(slot) = slot(address, 1, false) else { return };
    let before = format::decode(load(slot), 1);
    if let Slot::Table(_) = before {
        replace(slot, 1, Slot::Empty, address..address + RANGE_LEN as usize);
        free_table(before);
    }
}

/// Replaces an entry of 2 MiB by those of its pages.
fn split(address: usize) -> Option<()> {
    let slot = slot(address, 1, true)?;
    let Slot::Page(huge) = format::decode(load(slot), 1) else { return Some(()) };
    let table = page::new()?;
    for page in 0..RANGE_LEN / PAGE_LEN {
        let small = Entry { order: Order::Small, physical: huge.physical + page * PAGE_LEN, ..huge };
        store(table + page as usize * 8, format::encode(&small));
    }
    let start = address / RANGE_LEN as usize * RANGE_LEN as usize;
    replace(slot, 1, Slot::Table(table), start..start + RANGE_LEN as usize);
    Some(())
}

fn free_table(before: Slot) {
    if let Slot::Table(table) = before {
        // SAFETY: only this module stores such entries, for tables from `page::new`, and the entry is gone.
        unsafe { page::free(table) };
    }
}

/// Replaces an entry for `addresses`. Returns when no processor uses the former one.
fn replace(slot: usize, level: u32, entry: Slot, addresses: Range<usize>) {
    let before = format::decode(load(slot), level);
    let clean = |slot| if let Slot::Page(entry) = slot { Slot::Page(Entry { is_dirty: false, ..entry }) } else { slot };
    if clean(before) == entry {
        // Another processor has served the same fault; this one may still know that there was nothing.
        arch::forget_here(addresses);
        return;
    }
    if before != Slot::Empty {
        store(slot, EMPTY);
        arch::forget(addresses);
    }
    match entry {
        Slot::Empty => {}
        Slot::Table(table) => store(slot, format::table(table)),
        Slot::Page(entry) => store(slot, format::encode(&entry)),
    }
}
