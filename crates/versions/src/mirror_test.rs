use std::boxed::Box;

use super::*;
use crate::{Keys, Reader, Stamp, layout};

extern crate std;

type Memory = Box<[AtomicU64]>;

fn memory() -> Memory {
    (0..layout::len_bytes(layout::SLOTS_LOG2_MIN) / 8).map(|_| AtomicU64::new(0)).collect()
}

fn table() -> Writer<Memory> {
    Writer::format(memory(), layout::SLOTS_LOG2_MIN, Keys(1, 2)).unwrap()
}

#[test]
fn a_filled_mirror_says_what_the_table_says() {
    let table = table();
    let (changed, hot, quiet) = (table.reader().slot(7), table.reader().slot(8), table.reader().slot(9));
    let before = table.reader().now();
    table.raise(changed, table.next_stamp());
    table.set_hot(hot);
    table.raise_epoch();
    table.set_host_changes(true);
    let mirror = Mirror::new(memory(), &table).unwrap();
    mirror.fill(&table);

    let reader = Reader::new(&mirror.0).unwrap();
    assert_eq!((reader.now(), reader.slots()), (table.reader().now(), table.reader().slots()));
    assert_eq!([7, 8, 9].map(|ino| reader.slot(ino)), [changed, hot, quiet]);
    assert!(reader.is_hot(hot) && reader.stamps_host_changes() && !reader.is_valid(9, before));
    let fetched = crate::Moment { clock: before.clock, ..reader.now() };
    assert!(!reader.is_valid(7, fetched) && reader.is_valid(9, fetched));
}

#[test]
fn a_writer_that_is_late_changes_nothing() {
    let table = table();
    let mirror = Mirror::new(memory(), &table).unwrap();
    mirror.fill(&table);
    let slot = table.reader().slot(7);
    let words = [table.raise(slot, table.next_stamp()), table.set_hot(slot)];
    let cold = table.clear_hot(slot, || false).unwrap();
    for word in [words[1], cold, words[0], words[1]] {
        mirror.follow_slot(slot, word);
    }
    assert_eq!(load(&mirror.0[slot.word()]), cold);
}

#[test]
fn whatever_a_guest_writes_into_its_mirror_no_writer_waits_for_it() {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    let (table, is_over) = (table(), AtomicBool::new(false));
    let mirror = Mirror::new(memory(), &table).unwrap();
    let slot = table.reader().slot(7);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                for word in [&mirror.0[slot.word()], &mirror.0[CLOCK_AT]] {
                    word.fetch_xor(1 << 62, Ordering::SeqCst);
                }
            }
        });
        for _ in 0..10_000 {
            let word = table.raise(slot, table.next_stamp());
            mirror.follow_slot(slot, word);
            mirror.follow_clock(&table);
        }
        is_over.store(true, Relaxed);
    });
    assert_eq!(table.reader().now().clock, Stamp::new(10_000), "the table is as it would be without");
}

#[test]
fn memory_that_is_too_short_is_refused() {
    let short: Memory = memory().into_vec().drain(1..).collect();
    assert!(Mirror::new(short, &table()).is_err());
}

#[test]
fn nothing_is_valid_in_a_mirror_that_nobody_writes_any_more() {
    let table = table();
    let mirror = Mirror::new(memory(), &table).unwrap();
    mirror.fill(&table);
    let reader = Reader::new(&mirror.0).unwrap();
    assert!(reader.is_valid(7, reader.now()));
    mirror.retire();
    assert!(!reader.is_valid(7, reader.now()));
    // A writer that has not heard of it.
    let slot = table.reader().slot(7);
    mirror.follow_slot(slot, table.raise(slot, table.next_stamp()));
    mirror.follow_clock(&table);
    assert!(!reader.is_valid(7, reader.now()));
}
