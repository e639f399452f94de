//! What of a file is mapped: a tree of entries, each locked while a fault on it is under way.
//!
//! An entry stands for a page of 4 KiB or for an aligned 2 MiB: [`Kind::Empty`] while the first fault decides, then
//! [`Kind::Zero`] for a hole, or [`Kind::Real`]. Who finds one locked waits for its key, which is the first page of
//! what it stands for; an unlock wakes one waiter of that key, a removal all. A 2 MiB entry and entries of 4 KiB under
//! it never exist together: [`Tree::grab`] has the rules.
//!
//! Memory, per GiB of a file: a node for each 2 MiB in which there is an entry, at most 64 KiB of them, and 512 bytes
//! more for those that have entries of 4 KiB, at most 256 KiB.
//!
//! Locks: the tree's own, for moments; page tables are changed with an entry locked and the tree not. Who holds an
//! entry waits for no other, but for [`Tree::lock_all`], which takes them by ascending page.

mod lock_all;
mod locked;
mod node;
mod tree;

#[cfg(all(test, feature = "loom"))]
mod loom_test;

use core::ops::Range;

pub use lock_all::LockedAll;
pub use locked::Locked;
pub use tree::{Grab, Pages, Tree};

/// The small page, in bytes.
pub const PAGE_LEN: u64 = 4096;
/// Small pages in a large one.
pub const PAGES_PER_HUGE: u64 = super::RANGE_LEN / PAGE_LEN;

/// What an entry stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Huge,
}

impl Order {
    /// The first page of what contains `page`: the key of its entry.
    pub fn first_page(self, page: u64) -> u64 {
        match self {
            Self::Small => page,
            Self::Huge => page - page % PAGES_PER_HUGE,
        }
    }

    /// The pages of what contains `page`.
    pub fn pages(self, page: u64) -> Range<u64> {
        let first = self.first_page(page);
        match self {
            Self::Small => first..first + 1,
            Self::Huge => first..first + PAGES_PER_HUGE,
        }
    }
}

/// What is behind an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Nothing yet. It goes with the lock.
    Empty,
    /// A page of zeros that nobody stores to.
    Zero,
    /// Bytes of the file.
    Real,
}
