//! Tables as bytes, which a reader of either byte order finds in memory: a writer is for little-endian machines only.

extern crate std;

use std::{vec, vec::Vec};

use super::*;
use crate::layout;

const LOG2: u32 = layout::SLOTS_LOG2_MIN;

/// Stores 64 bits as the layout says, little endian.
fn put(bytes: &mut [u8], offset: usize, value: u64) {
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
}

/// A table of layout 1 with 512 slots, epoch 2, keys 3 and 4, and clock 100.
fn table() -> Vec<u8> {
    let mut bytes = vec![0; len_bytes(LOG2)];
    bytes[..16].copy_from_slice(b"TRANSOMV\x01\0\0\0\x09\0\0\0");
    for (offset, value) in [(16, 2), (24, 3), (32, 4), (64, 100)] {
        put(&mut bytes, offset, value);
    }
    bytes
}

/// Returns the bytes as a machine has them in memory.
fn words(bytes: &[u8]) -> Vec<AtomicU64> {
    bytes.chunks_exact(8).map(|word| AtomicU64::new(u64::from_ne_bytes(word.try_into().unwrap()))).collect()
}

#[test]
fn the_header_and_the_slots_are_read_as_little_endian() {
    let mut bytes = table();
    let empty = words(&bytes);
    let reader = Reader::new(&empty).unwrap();
    assert_eq!((reader.slots(), reader.stamps_host_changes()), (512, false));
    assert_eq!(reader.now(), Moment { epoch: 2, clock: Stamp::new(100) });

    // Inode 7 is changed at 101, and 8 is hot since 90.
    let [changed, hot] = [7, 8].map(|ino| reader.slot(ino));
    assert_ne!(changed, hot);
    put(&mut bytes, 4096 + 8 * changed.number() as usize, 101);
    put(&mut bytes, 4096 + 8 * hot.number() as usize, 1 << 63 | 90);
    put(&mut bytes, 40, 1);
    let filled = words(&bytes);
    let reader = Reader::new(&filled).unwrap();
    assert!(reader.stamps_host_changes() && reader.is_hot(hot) && !reader.is_hot(changed));
    let at = |epoch, clock| Moment { epoch, clock: Stamp::new(clock) };
    assert_eq!([at(2, 100), at(2, 101), at(3, 101)].map(|fetched| reader.is_valid(7, fetched)), [false, true, false]);
    assert!(!reader.is_valid(8, at(2, 200)));
}

#[test]
fn a_header_of_the_other_byte_order_is_no_table() {
    let mut bytes = table();
    bytes[..8].reverse();
    assert!(matches!(Reader::new(&words(&bytes)), Err(TableError::Magic { .. })));
}
