//! The entries of one aligned 2 MiB of a file, stored compactly.

use alloc::{boxed::Box, vec};

use super::{Kind, Order};
use crate::platform::PageSize;

/// One entry, or no entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry(u8);

impl Entry {
    const THERE: u8 = 1;
    const LOCKED: u8 = 2;
    const ZERO: u8 = 4;
    const REAL: u8 = 8;
    const DIRTY: u8 = 16;
    const YOUNG: u8 = 32;

    pub(super) const NONE: Self = Self(0);
    pub(super) const NEW: Self = Self(Self::THERE | Self::LOCKED);

    pub(super) fn is_there(self) -> bool {
        self.0 & Self::THERE != 0
    }

    pub(super) fn is_locked(self) -> bool {
        self.0 & Self::LOCKED != 0
    }

    pub(super) fn with_locked(self, is_locked: bool) -> Self {
        self.with(Self::LOCKED, is_locked)
    }

    pub(super) fn kind(self) -> Kind {
        match self.0 & (Self::ZERO | Self::REAL) {
            0 => Kind::Empty,
            Self::ZERO => Kind::Zero,
            _ => Kind::Real,
        }
    }

    pub(super) fn with_kind(self, kind: Kind) -> Self {
        self.with(Self::ZERO, kind == Kind::Zero).with(Self::REAL, kind == Kind::Real)
    }

    pub(super) fn is_dirty(self) -> bool {
        self.0 & Self::DIRTY != 0
    }

    pub(super) fn with_dirty(self, is_dirty: bool) -> Self {
        self.with(Self::DIRTY, is_dirty)
    }

    /// Returns whether it was used since the last search for idle entries.
    pub(super) fn is_young(self) -> bool {
        self.0 & Self::YOUNG != 0
    }

    pub(super) fn with_young(self, is_young: bool) -> Self {
        self.with(Self::YOUNG, is_young)
    }

    fn with(self, bit: u8, is_set: bool) -> Self {
        Self(if is_set { self.0 | bit } else { self.0 & !bit })
    }
}

/// Holds one entry of 2 MiB, entries of pages, or no entries.
#[derive(Debug)]
pub(super) struct Node {
    huge: Entry,
    small: Option<Small>,
    size: PageSize,
    /// Number of pins of its pages.
    pub(super) pins: u32,
    /// Changes with each removal of an entry, and is never that of an earlier node.
    pub(super) stamp: u64,
}

#[derive(Debug)]
struct Small {
    /// One for each page of the 2 MiB.
    entries: Box<[Entry]>,
    /// The number of entries that are there.
    used: u16,
}

impl Node {
    pub(super) fn new(stamp: u64, size: PageSize) -> Self {
        Self { huge: Entry::NONE, small: None, size, pins: 0, stamp }
    }

    /// Returns whether the node can be dropped.
    pub(super) fn is_unused(&self) -> bool {
        !self.huge.is_there() && self.small.is_none() && self.pins == 0
    }

    pub(super) fn has_small(&self) -> bool {
        self.small.is_some()
    }

    /// Returns the entry that contains `page`, which is in this node.
    pub(super) fn find(&self, page: u64) -> Option<(Order, Entry)> {
        let small = || Some(self.small.as_ref()?.entries[self.place(page)]);
        let found = if self.huge.is_there() { (Order::Huge, self.huge) } else { (Order::Small, small()?) };
        found.1.is_there().then_some(found)
    }

    /// Stores an entry, or [`Entry::NONE`], in place of an entry of the same order or of no entry.
    pub(super) fn put(&mut self, order: Order, page: u64, entry: Entry) {
        match order {
            Order::Huge => {
                debug_assert!(self.small.is_none(), "entries of pages under one of 2 MiB");
                self.huge = entry;
            }
            Order::Small => {
                debug_assert!(!self.huge.is_there(), "an entry of 2 MiB over one of a page");
                self.put_small(self.place(page), entry);
            }
        }
    }

    fn put_small(&mut self, place: usize, entry: Entry) {
        let count = self.size.pages_per_huge() as usize;
        let new = || Small { entries: vec![Entry::NONE; count].into_boxed_slice(), used: 0 };
        let small = self.small.get_or_insert_with(new);
        let before = core::mem::replace(&mut small.entries[place], entry);
        small.used = small.used + u16::from(entry.is_there()) - u16::from(before.is_there());
        if small.used == 0 {
            self.small = None;
        }
    }

    /// Returns the first entry at or after `page` in the node that begins at `first`.
    pub(super) fn next(&self, first: u64, page: u64) -> Option<(Order, u64, Entry)> {
        if self.huge.is_there() {
            return (page == first).then_some((Order::Huge, first, self.huge));
        }
        let entries = &self.small.as_ref()?.entries;
        let found = (self.place(page)..entries.len()).find(|&place| entries[place].is_there())?;
        Some((Order::Small, first + found as u64, entries[found]))
    }

    fn place(&self, page: u64) -> usize {
        (page % self.size.pages_per_huge()) as usize
    }
}
