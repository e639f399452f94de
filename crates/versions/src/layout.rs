//! The layout of the table: a header of one page, then the slots, all in words of 64 bits, little endian.
//!
//! | offset | what |
//! |---|---|
//! | 0 | [`MAGIC`] |
//! | 8 | [`LAYOUT`] (32 bits), then the logarithm of the number of slots (32 bits) |
//! | 16 | epoch: everything cached under another epoch is invalid |
//! | 24, 32 | keys of the hash |
//! | 40 | flags: bit 0, the host's own changes are stamped too |
//! | 64 | clock: the stamp of the last change |
//! | 4096 | slots: bit 63 hot, bits 0 to 62 the stamp of the last change of any inode that hashes here |
//!
//! Magic, layout and keys never change once the magic is there.

use core::mem::offset_of;

/// The first word: `TRANSOMV`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TRANSOMV");
/// The layout that this module describes.
pub const LAYOUT: u32 = 1;
/// Length of the header in bytes: a page, so that slots can be mapped apart from it.
pub const HEADER_LEN: usize = 4096;
/// Logarithm of the smallest number of slots: one page of them.
pub const SLOTS_LOG2_MIN: u32 = 9;
/// Logarithm of the largest number of slots: 2 GiB. The hash has 32 bits, so that more could never be reached evenly.
pub const SLOTS_LOG2_MAX: u32 = 28;
/// Logarithm of the usual number of slots: 512 KiB. A tree of 65536 inodes that are all in use shares about two to a
/// slot, so that a change invalidates about one other inode.
pub const SLOTS_LOG2: u32 = 16;
/// Flag: changes made on the host itself are stamped too, after a delay.
pub const FLAG_HOST_CHANGES: u64 = 1;
/// Bit of a slot: the inode may change at any time without a stamp.
pub const HOT: u64 = 1 << 63;

/// The header. It is never accessed as a structure, only word by word.
#[repr(C)]
struct Header {
    magic: u64,
    layout: u32,
    slots_log2: u32,
    epoch: u64,
    key0: u64,
    key1: u64,
    flags: u64,
    reserved0: [u64; 2],
    clock: u64,
    reserved1: [u64; 503],
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);
const _: () = assert!(offset_of!(Header, layout) == 8 && offset_of!(Header, slots_log2) == 12);
const _: () = assert!(offset_of!(Header, epoch) == 16);
const _: () = assert!(offset_of!(Header, key0) == 24 && offset_of!(Header, key1) == 32);
const _: () = assert!(offset_of!(Header, flags) == 40);
const _: () = assert!(offset_of!(Header, clock) == 64);

/// Words by their index.
pub(crate) const WORD_LEN: usize = size_of::<u64>();
pub(crate) const HEADER_WORDS: usize = HEADER_LEN / WORD_LEN;
pub(crate) const MAGIC_AT: usize = offset_of!(Header, magic) / WORD_LEN;
pub(crate) const LAYOUT_AT: usize = offset_of!(Header, layout) / WORD_LEN;
pub(crate) const EPOCH_AT: usize = offset_of!(Header, epoch) / WORD_LEN;
pub(crate) const KEY0_AT: usize = offset_of!(Header, key0) / WORD_LEN;
pub(crate) const KEY1_AT: usize = offset_of!(Header, key1) / WORD_LEN;
pub(crate) const FLAGS_AT: usize = offset_of!(Header, flags) / WORD_LEN;
pub(crate) const CLOCK_AT: usize = offset_of!(Header, clock) / WORD_LEN;

/// Returns the length in bytes of a table with `1 << slots_log2` slots.
///
/// # Panics
/// If `slots_log2` exceeds [`SLOTS_LOG2_MAX`].
pub const fn len_bytes(slots_log2: u32) -> usize {
    assert!(slots_log2 <= SLOTS_LOG2_MAX, "more slots than a table may have");
    HEADER_LEN + (WORD_LEN << slots_log2)
}
