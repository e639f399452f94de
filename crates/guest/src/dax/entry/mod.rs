//! The mapped parts of a file: a tree of entries, each locked while a fault on it is served.
//!
//! An entry stands for a page (`Platform::PAGE_SIZE`) or for an aligned 2 MiB: [`Kind::Empty`] while the first fault
//! decides, then [`Kind::Zero`] for a hole, or [`Kind::Real`]. A thread that finds an entry locked waits for its key,
//! which is the entry's first page; an unlock wakes one waiter of that key, a removal all of them. A 2 MiB entry and
//! entries of pages within it never exist together: see [`Tree::grab`] for the rules.
//!
//! Memory per GiB of a file: a node for each 2 MiB that has an entry, at most 64 KiB in total. A node with entries of
//! pages takes a byte more for each page that 2 MiB have: 512 bytes with pages of 4 KiB, at most 256 KiB in total.
//!
//! Locks: the tree's own, for short sections. Page tables are changed with an entry locked and the tree unlocked. A
//! thread that has locked an entry waits for no other entry, except in [`Tree::lock_all`], which takes them by
//! ascending page.

mod lock_all;
mod locked;
mod node;
mod tree;

#[cfg(all(test, feature = "loom"))]
mod loom_test;
#[cfg(all(test, not(feature = "loom")))]
mod tree_test;

use core::ops::Range;

pub use lock_all::LockedAll;
pub use locked::Locked;
pub use tree::{Grab, Pages, Tree};

use crate::platform::PageSize;

/// The size of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// A page.
    Small,
    /// 2 MiB.
    Huge,
}

impl Order {
    /// Returns the first page of the entry that contains `page`: the entry's key.
    pub fn first_page(self, page: u64, size: PageSize) -> u64 {
        match self {
            Self::Small => page,
            Self::Huge => page - page % size.pages_per_huge(),
        }
    }

    /// Returns the pages of the entry that contains `page`.
    pub fn pages(self, page: u64, size: PageSize) -> Range<u64> {
        let first = self.first_page(page, size);
        match self {
            Self::Small => first..first + 1,
            Self::Huge => first..first + size.pages_per_huge(),
        }
    }
}

/// What an entry maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing yet. Such an entry is removed when it is unlocked.
    Empty,
    /// A page of zeros, which is never stored to.
    Zero,
    /// Bytes of the file.
    Real,
}
