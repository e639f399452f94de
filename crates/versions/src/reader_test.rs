extern crate std;

use core::sync::atomic::Ordering::Relaxed;
use std::{boxed::Box, string::ToString as _, vec::Vec};

use super::*;
use crate::{Writer, layout};

type Words = Box<[AtomicU64]>;

const LOG2: u32 = layout::SLOTS_LOG2_MIN;

fn zeroed(len_bytes: usize) -> Words {
    (0..len_bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

fn table() -> Words {
    let words = zeroed(len_bytes(LOG2));
    Writer::format(&words, LOG2, Keys(3, 4)).unwrap();
    words
}

/// The message for a table in which the word at `offset` is `value`.
fn message_with(offset: usize, value: u64) -> std::string::String {
    let words = table();
    words[offset / 8].store(value, Relaxed);
    Reader::new(&words).unwrap_err().to_string()
}

#[test]
fn the_header_has_its_fields_where_the_layout_says() {
    let words = table();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes()).collect();
    assert_eq!(&bytes[..8], b"TRANSOMV");
    assert_eq!((&bytes[8..12], &bytes[12..16]), (&[1, 0, 0, 0][..], &[9, 0, 0, 0][..]));
    assert_eq!((bytes[24], bytes[32], bytes.len()), (3, 4, 4096 + 4096));
}

#[test]
fn memory_that_is_not_a_table_is_refused_with_the_reason() {
    let short = zeroed(4088);
    assert_eq!(
        Reader::new(&short).unwrap_err().to_string(),
        "the version table has 4088 bytes, fewer than its header of 4096 bytes"
    );
    assert_eq!(message_with(0, 5), "the version table begins with 0x0000000000000005 instead of 0x564d4f534e415254");
    assert_eq!(message_with(8, 9 << 32 | 2), "the version table has layout 2, but only layout 1 is supported");
    assert_eq!(message_with(8, 8 << 32 | 1), "the version table has 2^8 slots; 2^9 to 2^28 are supported");
    assert_eq!(message_with(8, 40 << 32 | 1), "the version table has 2^40 slots; 2^9 to 2^28 are supported");
    assert_eq!(message_with(8, 10 << 32 | 1), "the version table has 8192 bytes, but its header says 12288");
}

#[test]
fn longer_memory_than_the_table_is_accepted() {
    let words = zeroed(len_bytes(LOG2) * 2);
    Writer::format(&words, LOG2, Keys(0, 0)).unwrap();
    assert_eq!(Reader::new(&words).unwrap().slots(), 512);
}

#[test]
fn what_is_cached_is_valid_until_its_slot_or_the_epoch_is_raised() {
    let words = table();
    let (reader, writer) = (Reader::new(&words).unwrap(), Writer::new(&words).unwrap());
    let (mine, other) = (7, 8);
    assert_ne!(reader.slot(mine), reader.slot(other));

    let fetched = reader.now();
    assert!(reader.is_valid(mine, fetched));
    writer.raise(reader.slot(other), writer.next_stamp());
    assert!(reader.is_valid(mine, fetched) && !reader.is_valid(other, fetched));
    writer.raise(reader.slot(mine), writer.next_stamp());
    assert!(!reader.is_valid(mine, fetched));

    let fetched = reader.now();
    assert!(reader.is_valid(mine, fetched) && reader.is_valid(other, fetched));
    writer.raise_epoch();
    assert!(!reader.is_valid(mine, fetched) && reader.is_valid(mine, reader.now()));
}

#[test]
fn the_flag_says_whether_changes_of_the_host_are_stamped() {
    let words = table();
    let (reader, writer) = (Reader::new(&words).unwrap(), Writer::new(&words).unwrap());
    assert!(!reader.stamps_host_changes());
    writer.set_host_changes(true);
    assert!(reader.stamps_host_changes());
    writer.set_host_changes(false);
    assert!(!reader.stamps_host_changes());
}
