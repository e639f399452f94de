//! The shape of page tables, which follows from the size of a page.
//!
//! A table is a page of entries of 8 bytes. Level 0 is the lowest, whose entries map pages. What is mapped for 2 MiB is
//! one entry of level 1 where pages have 4 KiB. Larger pages have no entry of that length: there, it is a group of
//! entries of level 0, which Arm's contiguous hint joins.

use transom_guest::{dax::RANGE_LEN, platform::PageSize};

use super::platform::{PAGE_LEN, PAGE_SIZE};

/// Bits of an address within a page.
pub(super) const PAGE_SHIFT: u32 = PAGE_LEN.trailing_zeros();

/// Bits of an address by which an entry of a table is chosen.
pub(super) const INDEX_BITS: u32 = PAGE_SHIFT - 3;

/// The level of the highest table. There are as many levels as the addresses that the kernel uses take, 41 bits, but
/// four with pages of 4 KiB, which all architectures have.
pub(super) const ROOT_LEVEL: u32 = match PAGE_SIZE {
    PageSize::Kib4 => 3,
    PageSize::Kib16 => 2,
    PageSize::Kib64 => 1,
};

/// The level of the entries that map 2 MiB, and how many that takes.
pub(super) const HUGE_LEVEL: u32 = if 1 << (PAGE_SHIFT + INDEX_BITS) == RANGE_LEN { 1 } else { 0 };
pub(super) const HUGE_ENTRIES: usize = (RANGE_LEN >> (PAGE_SHIFT + INDEX_BITS * HUGE_LEVEL)) as usize;

/// Bytes that a lowest table maps.
pub(super) const TABLE_SPAN: usize = 1 << (PAGE_SHIFT + INDEX_BITS);

/// Returns the number of an address's entry in its table of this level.
pub(super) fn index(address: usize, level: u32) -> usize {
    address >> (PAGE_SHIFT + INDEX_BITS * level) & ((1 << INDEX_BITS) - 1)
}
