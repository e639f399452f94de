extern crate std;

use std::boxed::Box;

use super::*;
use crate::layout::{HOT, SLOTS_LOG2_MIN};

fn table() -> Writer<Box<[AtomicU64]>> {
    let words = (0..len_bytes(SLOTS_LOG2_MIN) / 8).map(|_| AtomicU64::new(0)).collect();
    Writer::format(words, SLOTS_LOG2_MIN, Keys(1, 2)).unwrap()
}

#[test]
fn a_table_needs_a_number_of_slots_within_the_limits_and_the_memory_for_them() {
    let words: Box<[AtomicU64]> = (0..512).map(|_| AtomicU64::new(0)).collect();
    assert_eq!(Writer::format(&words, 8, Keys(0, 0)).unwrap_err(), TableError::Slots { found: 8 });
    assert_eq!(Writer::format(&words, 29, Keys(0, 0)).unwrap_err(), TableError::Slots { found: 29 });
    let short = TableError::Short { len_bytes: 4096, needed_bytes: 8192 };
    assert_eq!(Writer::format(&words, 9, Keys(0, 0)).unwrap_err(), short);
}

#[test]
fn a_slot_never_goes_back_and_raising_keeps_it_hot() {
    let writer = table();
    let slot = writer.reader().slot(1);
    let (early, late) = (writer.next_stamp(), writer.next_stamp());
    assert_eq!(writer.raise(slot, late), late.get());
    let again = writer.raise(slot, early);
    assert!(again > late.get(), "a change whose stamp is too low gets another one");
    assert_eq!(again, writer.reader().now().clock.get());

    let hot = writer.set_hot(slot);
    let stamp = writer.next_stamp();
    assert!(hot & HOT != 0 && hot & !HOT > again);
    assert_eq!(writer.raise(slot, stamp), HOT | stamp.get());
}

#[test]
fn nothing_of_a_hot_slot_is_valid_and_the_end_of_its_heat_is_a_change() {
    let writer = table();
    let (reader, slot) = (writer.reader(), writer.reader().slot(1));
    let before = reader.now();
    writer.set_hot(slot);
    let during = reader.now();
    assert!(!reader.is_valid(1, before) && !reader.is_valid(1, during));

    assert_eq!(writer.clear_hot(slot, || true), None, "somebody else needs it");
    assert!(!reader.is_valid(1, reader.now()));
    assert!(writer.clear_hot(slot, || false).is_some());
    assert!(!reader.is_valid(1, during) && reader.is_valid(1, reader.now()));
}
