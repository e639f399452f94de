//! Page tables for the addresses of mapped files, and for windows, with entries of pages and of 2 MiB.
//!
//! Tables below the highest one are created when they are needed; only lowest ones are freed, when a mapping goes.
//! Processors mark entries dirty by themselves, or fault where they cannot (`dirty`), so each change is one store of a
//! whole entry. Changes are made under [`CHANGING`]. One that takes a page or a right away is complete when every
//! processor has forgotten the translation (`arch::forget`); before that, no page or table is freed. Where one thing
//! takes the place of another, the entry is empty in between, as Arm demands: a processor never keeps both. What faults
//! meanwhile waits for [`CHANGING`], and is repeated.

#![expect(unsafe_code, reason = "frees tables and pages that nothing refers to any more")]

use alloc::vec::Vec;
use core::ops::Range;

use transom_guest::dax::{RANGE_LEN, entry::Order, fault::PagePart};

use super::{
    arch::{self, format},
    copy,
    entry::{EMPTY, Entry, Slot},
    geometry::{HUGE_LEVEL, TABLE_SPAN},
    lock::Lock,
    page,
    platform::PAGE_LEN,
    slots::Slots,
    walk::{load, slot, store_all},
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
    match found {
        Slot::Page(Entry { order: Order::Huge, .. }) => Slots::of(address, Order::Huge, false)?.mapped(),
        Slot::Page(entry) => Some(entry),
        Slot::Empty | Slot::Table(_) => None,
    }
}

/// Sets the entry for `address`, of which `entry.order` and `entry.physical` are multiples. Splits an entry of 2 MiB
/// for one of a page, and replaces entries of pages by one of 2 MiB. Returns `None` without memory for a table.
pub(super) fn set(address: usize, entry: Entry) -> Option<()> {
    if entry.order == Order::Small {
        split(address)?;
    }
    let slots = Slots::of(address, entry.order, true)?;
    let before = slots.first();
    slots.replace(Slot::Page(entry));
    free_table(before);
    Some(())
}

/// Maps a private, writable copy of a page at `address`: what there is of it, followed by zeros. Returns `None` if
/// there is no memory.
pub(super) fn set_copy(address: usize, from: Option<PagePart>) -> Option<()> {
    let copied = page::new()?;
    if let Some(PagePart { start, len_bytes }) = from {
        assert!(len_bytes <= PAGE_LEN as usize, "{len_bytes} bytes are more than a page");
        // SAFETY: the new page has no other user, and the part is one of the window, which the caller has pinned. The
        // copy is one instruction, for which stores by others meanwhile are no race of Rust's.
        unsafe { copy::page(copied, start, len_bytes) };
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
        is_removed.then_some(Slot::Empty)
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
        is_taken.then_some(Slot::Page(Entry { is_writable: false, is_dirty: false, ..entry }))
    });
}

/// Stores what `change` makes of each entry at `addresses`, where it changes it. Returns when no processor uses the
/// former ones.
fn change(addresses: Range<usize>, mut change: impl FnMut(Entry) -> Option<Slot>) {
    let mut changed: Option<Range<usize>> = None;
    let mut at = addresses.start;
    while at < addresses.end {
        let entry = get(at);
        let len = match entry {
            Some(Entry { order: Order::Huge, .. }) => RANGE_LEN as usize,
            Some(_) => PAGE_LEN as usize,
            None if slot(at, 0, false).is_some() => PAGE_LEN as usize,
            None => TABLE_SPAN,
        };
        let end = (at + 1).next_multiple_of(len);
        if let Some(entry) = entry
            && let Some(slot) = change(entry)
            && let Some(slots) = Slots::of(at, entry.order, false)
        {
            slots.store(slot);
            // All of an entry of 2 MiB is changed, wherever in it the range begins.
            let start = slots.addresses().start;
            changed = Some(changed.map_or(start, |before| before.start)..end);
        }
        at = end;
    }
    if let Some(changed) = changed {
        arch::forget(changed);
    }
}

/// Marks the entry for `address`, which is `entry`, as stored to.
pub(super) fn mark(address: usize, entry: Entry) {
    if let Some(slots) = Slots::of(address, entry.order, false) {
        slots.store(Slot::Page(Entry { is_dirty: true, ..entry }));
    }
}

/// Removes the lowest tables for `addresses` in which no entry is left.
pub(super) fn clear_tables(addresses: Range<usize>) {
    for at in (addresses.start / TABLE_SPAN * TABLE_SPAN..addresses.end).step_by(TABLE_SPAN) {
        let Some(slots) = Slots::of_table(at) else { continue };
        let before = slots.first();
        if let Slot::Table(table) = before
            && (table..table + PAGE_LEN as usize).step_by(8).all(|slot| load(slot) == EMPTY)
        {
            slots.replace(Slot::Empty);
            free_table(before);
        }
    }
}

/// Replaces an entry of 2 MiB by those of its pages.
fn split(address: usize) -> Option<()> {
    let Some(huge) = get(address).filter(|entry| entry.order == Order::Huge) else { return Some(()) };
    let slots = Slots::of(address, Order::Huge, false)?;
    let small = Entry { order: Order::Small, ..huge };
    if HUGE_LEVEL == 0 {
        slots.replace(Slot::Page(small));
        return Some(());
    }
    let table = page::new()?;
    let entry = |page: u64| format::encode(&Entry { physical: huge.physical + page * PAGE_LEN, ..small });
    store_all((0..RANGE_LEN / PAGE_LEN).map(|page| (table + page as usize * 8, entry(page))));
    slots.replace(Slot::Table(table));
    Some(())
}

fn free_table(before: Slot) {
    if let Slot::Table(table) = before {
        // SAFETY: only this module stores such entries, for tables from `page::new`, and the entry is gone.
        unsafe { page::free(table) };
    }
}
