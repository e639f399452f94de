extern crate std;

use std::vec::Vec;

use super::*;

/// Joins changes in their order, and returns the clocks from 0 to 9 whose fetches a slot with `word` leaves valid.
fn valid_after(changes: &[(u64, u64)], word: u64) -> Vec<u64> {
    let own = OwnChanges::default();
    changes.iter().for_each(|&(previous, word)| own.join(Raised { previous, word }));
    (0..10).filter(|&clock| own.explain(word, Stamp::new(clock))).collect()
}

#[test]
fn changes_that_follow_each_other_are_one_range() {
    assert_eq!(valid_after(&[], 5), []);
    assert_eq!(valid_after(&[(3, 5)], 5), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(valid_after(&[(3, 5), (5, 8)], 8), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(valid_after(&[(3, 5), (5, 8)], 5), [], "the slot has gone on");
    assert_eq!(valid_after(&[(3, 5)], 6), [], "somebody else has changed it");
}

#[test]
fn replies_out_of_order_are_joined_once_the_gap_is_closed() {
    assert_eq!(valid_after(&[(5, 8)], 8), [5, 6, 7, 8, 9]);
    assert_eq!(valid_after(&[(5, 8), (3, 5)], 8), [3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(valid_after(&[(7, 8), (3, 5), (5, 7)], 8), [5, 6, 7, 8, 9], "one was dropped while there was a gap");
}

#[test]
fn a_gap_drops_what_was_fetched_before_it() {
    assert_eq!(valid_after(&[(3, 5), (6, 8)], 8), [6, 7, 8, 9], "6 is another guest's");
    assert_eq!(valid_after(&[(6, 8), (3, 5)], 8), [6, 7, 8, 9]);
}

#[test]
fn what_no_slot_does_is_not_believed() {
    for (previous, word) in [(5, 5), (5, 4), (HOT | 3, HOT | 5), (3, HOT | 5), (HOT | 3, 5)] {
        assert_eq!(valid_after(&[(previous, word)], word), [], "{previous:x} to {word:x}");
        assert_eq!(valid_after(&[(3, 5), (previous, word)], 5), [3, 4, 5, 6, 7, 8, 9], "{previous:x} to {word:x}");
    }
    assert_eq!(valid_after(&[(3, 5), (4, 8)], 8), [], "from the middle of the range");
    assert_eq!(valid_after(&[(3, 8), (2, 5)], 8), []);
    assert_eq!(valid_after(&[(3, 5), (3, 5)], 5), [3, 4, 5, 6, 7, 8, 9], "the same one twice");
}
