//! How uses and requests are counted, and which parts deserve a slot.

use transom_wire::NodeId;

use super::admission::{Admission, Heat, WORTH_MIN};

const EPOCH_NS: u64 = 100_000_000;

fn heat(epoch: u16, uses: u8) -> Heat {
    let heat = Heat::default();
    heat.begin(epoch, uses);
    heat
}

#[test]
fn uses_are_halved_with_each_epoch_until_none_is_left() {
    let warm = heat(5, 40);
    assert_eq!([5, 6, 7, 8, 10, 11, 13, 14, 45].map(|epoch| warm.get(epoch)), [40, 20, 10, 5, 1, 0, 0, 0, 0]);
    warm.touch(6);
    assert_eq!([6, 7].map(|epoch| warm.get(epoch)), [21, 10]);
    // The epoch is a 16-bit number that starts over.
    assert_eq!(heat(u16::MAX, 40).get(0), 20);
    let hot = heat(1, u8::MAX);
    hot.touch(1);
    assert_eq!(hot.get(1), 255, "a count has an end");
}

#[test]
fn a_range_is_idle_a_second_after_its_last_use() {
    let used = heat(3, 1);
    assert!(!used.is_idle(3) && !used.is_idle(12) && used.is_idle(13));
    used.touch(13);
    assert!(!used.is_idle(22) && used.is_idle(23));
    let late = heat(u16::MAX - 5, 1);
    assert!(!late.is_idle(3) && late.is_idle(4));
}

#[test]
fn a_range_that_a_reader_has_left_is_so_until_it_is_used() {
    let heat = heat(0, 1);
    assert!(!heat.is_left());
    assert!(heat.leave() && heat.is_left());
    assert!(!heat.leave(), "recorded already");
    heat.touch(0);
    assert!(!heat.is_left() && heat.leave());
    heat.begin(0, 1);
    assert!(!heat.is_left());
}

#[test]
fn time_advances_by_whole_epochs_and_by_no_more_than_a_second_at_once() {
    let admission = Admission::new(4);
    let at = |now_ns| {
        admission.tick(now_ns);
        admission.epoch()
    };
    assert_eq!(admission.epoch(), 0);
    assert_eq!(at(1000), 1, "the first look begins an epoch");
    assert_eq!(at(1000 + EPOCH_NS - 1), 1);
    assert_eq!(at(1000 + EPOCH_NS), 2);
    assert_eq!(at(1000 + EPOCH_NS), 2, "the next one ends later");
    // Three more have ended unseen since the end of this one.
    assert_eq!(at(1000 + 2 * EPOCH_NS + 3 * EPOCH_NS), 6);
    assert_eq!(at(1000 * EPOCH_NS), 16);
}

#[test]
fn requests_for_a_part_add_up_and_age() {
    let admission = Admission::new(64);
    let (node, other) = (NodeId(7), NodeId(8));
    for count in 1..=10 {
        assert_eq!(admission.ask(node, 3, 1), count);
    }
    assert_eq!(admission.ask(other, 3, 1), 1, "that of another file");
    assert_eq!(admission.ask(node, 4, 1), 1, "another part");
    admission.tick(EPOCH_NS);
    assert_eq!(admission.ask(node, 3, 2), 7, "half of ten, and two");
    assert_eq!(admission.ask(node, 3, 300), 300, "what it saves now counts, even beyond what is kept");
    assert_eq!(admission.ask(node, 3, 1), 255);
}

#[test]
fn of_two_parts_with_one_entry_the_one_that_is_asked_for_more_often_stays() {
    // A table with a single entry.
    let admission = Admission::new(0);
    let (one, other) = (NodeId(1), NodeId(2));
    assert_eq!(admission.ask(one, 0, 3), 3);
    assert_eq!(admission.ask(other, 0, 1), 1);
    assert_eq!(admission.ask(one, 0, 1), 3, "the other has taken one of three");
    for _ in 0..3 {
        assert_eq!(admission.ask(other, 0, 1), 1);
    }
    assert_eq!(admission.ask(other, 0, 1), 1, "the entry is free");
    assert_eq!(admission.ask(other, 0, 1), 2);
}

#[test]
fn a_slot_is_deserved_by_four_times_its_uses_and_at_least_what_a_mapping_costs() {
    let cases = [(15, 0, false), (16, 0, true), (16, 3, true), (16, 4, false), (19, 4, false), (20, 4, true)];
    for (asked, used, deserves) in cases {
        assert_eq!(Admission::deserves(asked, used), deserves, "{asked} for {used}");
    }
    let credits = [(u32::MAX, WORTH_MIN as u8), (3, 16), (16, 16), (100, 100), (255, 255), (1000, 255)];
    for (asked, credit) in credits {
        assert_eq!(Admission::credit(asked), credit, "{asked}");
    }
}
