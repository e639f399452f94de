//! What an entry of a page table says, in whatever format the processor reads it (`arch::format`).
//!
//! `geometry` says which tables there are.

use transom_guest::dax::entry::Order;

/// What is mapped at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// [`Order::Huge`] also says that an entry of a page belongs to a group.
    pub(super) order: Order,
    pub(super) physical: u64,
    pub(super) is_writable: bool,
    /// The page is a private copy.
    pub(super) is_copy: bool,
    /// A processor has stored there.
    pub(super) is_dirty: bool,
}

/// An entry of any table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Empty,
    /// The address of the table below.
    Table(usize),
    Page(Entry),
}

/// An entry that maps nothing, in every format.
pub(super) const EMPTY: u64 = 0;
