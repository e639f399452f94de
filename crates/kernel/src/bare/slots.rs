//! The entries that map one thing: one entry, or where pages are larger than 4 KiB, the group that maps 2 MiB.
//!
//! All entries of a group say the same, which Arm demands, so a group that maps something is changed by way of empty
//! entries. A processor may mark any of them dirty for all.

use core::ops::Range;

use transom_guest::dax::{RANGE_LEN, entry::Order};

use super::{
    arch::{self, format},
    entry::{EMPTY, Entry, Slot},
    geometry::{HUGE_ENTRIES, HUGE_LEVEL, TABLE_SPAN},
    platform::PAGE_LEN,
    walk::{load, slot, store_all},
};

/// Entries of one table.
pub(super) struct Slots {
    /// The address of the first one.
    first: usize,
    level: u32,
    count: usize,
    /// What they map.
    addresses: Range<usize>,
}

impl Slots {
    /// Returns the entries that map the page at `address`, or its aligned 2 MiB. Without `creates`, returns `None` if
    /// there is no table that they would be in.
    pub(super) fn of(address: usize, order: Order, creates: bool) -> Option<Self> {
        match order {
            Order::Small => Self::new(address, 0, 1, PAGE_LEN as usize, creates),
            Order::Huge => Self::new(address, HUGE_LEVEL, HUGE_ENTRIES, RANGE_LEN as usize, creates),
        }
    }

    /// Returns the entry of the lowest table for `address`, if there is a table above it.
    pub(super) fn of_table(address: usize) -> Option<Self> {
        Self::new(address, 1, 1, TABLE_SPAN, false)
    }

    fn new(address: usize, level: u32, count: usize, len: usize, creates: bool) -> Option<Self> {
        let start = address / len * len;
        Some(Self { first: slot(start, level, creates)?, level, count, addresses: start..start + len })
    }

    /// Returns the addresses that the entries map.
    pub(super) fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    /// Returns what the first entry says.
    pub(super) fn first(&self) -> Slot {
        format::decode(load(self.first), self.level)
    }

    /// Returns what all entries map together, if they map one thing.
    pub(super) fn mapped(&self) -> Option<Entry> {
        let Slot::Page(entry) = self.first() else { return None };
        let is_dirty = |slot| matches!(slot, Slot::Page(Entry { is_dirty: true, .. }));
        Some(Entry { is_dirty: self.all().any(|(_, slot)| is_dirty(slot)), ..entry })
    }

    /// Changes the entries. What they mapped is out of use only after `arch::forget`.
    pub(super) fn store(&self, slot: Slot) {
        if self.count > 1 && slot != Slot::Empty {
            self.clear();
        }
        self.write(slot);
    }

    /// Changes the entries. Returns when no processor uses the former ones.
    pub(super) fn replace(&self, slot: Slot) {
        let clean =
            |slot| if let Slot::Page(entry) = slot { Slot::Page(Entry { is_dirty: false, ..entry }) } else { slot };
        if self.all().all(|(number, found)| clean(found) == part(slot, number)) {
            // Another processor has served the same fault; this one may still know that there was nothing.
            arch::forget_here(self.addresses.clone());
            return;
        }
        if self.all().any(|(_, found)| found != Slot::Empty) {
            self.clear();
        }
        self.write(slot);
    }

    /// Empties the entries. Returns when no processor uses the former ones.
    fn clear(&self) {
        self.write(Slot::Empty);
        arch::forget(self.addresses.clone());
    }

    fn write(&self, slot: Slot) {
        let bits = |number| match part(slot, number) {
            Slot::Empty => EMPTY,
            Slot::Table(table) => format::table(table),
            Slot::Page(entry) => format::encode(&entry),
        };
        store_all((0..self.count).map(|number| (self.first + number * 8, bits(number))));
    }

    /// Returns each entry with its number.
    fn all(&self) -> impl Iterator<Item = (usize, Slot)> + use<'_> {
        (0..self.count).map(|number| (number, format::decode(load(self.first + number * 8), self.level)))
    }
}

/// Returns what entry `number` of those that say `slot` says.
fn part(slot: Slot, number: usize) -> Slot {
    match slot {
        Slot::Page(entry) => Slot::Page(Entry { physical: entry.physical + number as u64 * PAGE_LEN, ..entry }),
        slot => slot,
    }
}
