//! What is stale, and what is forgotten, without a kernel.

use transom_versions::{AtomicU64, Keys, Raised, Writer, layout};

use super::*;

const FILE: NodeId = NodeId(2);

fn table() -> Writer<Vec<AtomicU64>> {
    let words = layout::len_bytes(layout::SLOTS_LOG2_MIN) / size_of::<u64>();
    let memory = (0..words).map(|_| AtomicU64::new(0)).collect();
    Writer::format(memory, layout::SLOTS_LOG2_MIN, Keys(1, 2)).unwrap()
}

/// Changes the inode with that slot, as a daemon of the group. Returns what the reply's trailer says.
fn change(table: &Writer<Vec<AtomicU64>>, slot: Slot) -> RaisedSlots {
    let raised = table.raise_from(slot, table.next_stamp());
    vec![(slot.number(), raised)]
}

/// Begins a change of the mount's own to [`FILE`], and returns its moment.
fn begin_change(known: &KnownInodes, table: &Writer<Vec<AtomicU64>>) -> Moment {
    let reader = table.reader();
    known.begin_change(FILE, |slot, fetched, own| reader.is_slot_valid_but_for(slot, fetched, own));
    reader.now()
}

/// Returns what a scan finds stale, and whether something is hot.
fn scan(known: &KnownInodes, table: &Writer<Vec<AtomicU64>>) -> (Vec<NodeId>, bool) {
    let (reader, mut stale) = (table.reader(), Vec::new());
    let is_valid = |slot, fetched, own: &_| reader.is_slot_valid_but_for(slot, fetched, own);
    let has_hot = known.take_stale(reader.now(), is_valid, |slot| reader.is_hot(slot), &mut stale);
    (stale.into_iter().map(|stale: StaleInode| stale.nodeid).collect(), has_hot)
}

/// An inode that was looked up once, at the moment that is returned.
fn looked_up(table: &Writer<Vec<AtomicU64>>) -> (KnownInodes, Slot, Moment) {
    let (known, slot, moment) = (KnownInodes::default(), table.reader().slot(7), table.reader().now());
    known.add(FILE, slot, moment);
    (known, slot, moment)
}

#[test]
fn a_change_makes_an_inode_stale_once() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    assert_eq!(scan(&known, &table), (vec![], false));
    change(&table, slot);
    assert_eq!(scan(&known, &table), (vec![FILE], false));
    assert_eq!(scan(&known, &table), (vec![], false));
}

#[test]
fn a_reply_that_is_older_than_the_last_scan_makes_it_stale_again() {
    let table = table();
    let (known, slot, moment) = looked_up(&table);
    let is_valid = |slot, fetched, own: &_| table.reader().is_slot_valid_but_for(slot, fetched, own);
    assert!(known.note_fetched(FILE, moment, is_valid));
    change(&table, slot);
    assert_eq!(scan(&known, &table), (vec![FILE], false));
    // Sent before the change, and written to the kernel after the notification.
    assert!(!known.note_fetched(FILE, moment, is_valid));
    assert_eq!(scan(&known, &table), (vec![FILE], false));
    assert!(known.note_fetched(FILE, table.reader().now(), is_valid));
    assert_eq!(scan(&known, &table), (vec![], false));
}

#[test]
fn a_new_epoch_makes_everything_stale() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    known.add_root(slot, table.reader().now());
    table.raise_epoch();
    let (mut stale, has_hot) = scan(&known, &table);
    stale.sort_by_key(|nodeid| nodeid.0);
    assert_eq!((stale, has_hot), (vec![NodeId::ROOT, FILE], false));
    assert_eq!(scan(&known, &table), (vec![], false));
}

#[test]
fn a_hot_inode_is_stale_at_each_scan() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    table.set_hot(slot);
    assert_eq!(scan(&known, &table), (vec![FILE], true));
    assert_eq!(scan(&known, &table), (vec![FILE], true));
    table.clear_hot(slot, || false);
    assert_eq!(scan(&known, &table), (vec![FILE], false));
    assert_eq!(scan(&known, &table), (vec![], false));
}

#[test]
fn an_inode_is_known_until_its_last_reference_is_dropped() {
    let table = table();
    let (known, slot, moment) = looked_up(&table);
    known.add(FILE, slot, moment);
    known.add_root(slot, moment);
    known.forget(FILE, 1);
    known.forget(NodeId::ROOT, 9);
    known.forget(NodeId(77), 1);
    change(&table, slot);
    assert_eq!(scan(&known, &table).0.len(), 2);
    // More than was counted is no reason to wrap.
    known.forget(FILE, 5);
    change(&table, slot);
    assert_eq!(scan(&known, &table).0, [NodeId::ROOT]);
}

#[test]
fn names_of_a_changed_directory_are_handed_out_once_with_late_ones() {
    let table = table();
    let (known, slot, moment) = looked_up(&table);
    let names = |names: &[&str]| -> NameSet { names.iter().map(|name| name.as_bytes().into()).collect() };
    let note = |noted: &[&str]| known.note_names(FILE, names(noted).into_iter());
    let stale_names = || {
        let (reader, mut stale) = (table.reader(), Vec::new());
        let is_valid = |slot, at, own: &_| reader.is_slot_valid_but_for(slot, at, own);
        known.take_stale(reader.now(), is_valid, |_| false, &mut stale);
        stale.into_iter().map(|stale: StaleInode| stale.names).collect::<Vec<_>>()
    };
    let is_valid = |slot, fetched, own: &_| table.reader().is_slot_valid_but_for(slot, fetched, own);
    assert_eq!((note(&["a", "b"]), note(&["b", "c"])), (2, 1));
    assert!(known.note_fetched(FILE, moment, is_valid));
    assert!(stale_names().is_empty());
    change(&table, slot);
    assert_eq!(stale_names(), [names(&["a", "b", "c"])]);
    assert!(stale_names().is_empty());
    // Of a reply that is older than the change.
    assert_eq!(note(&["d"]), 1);
    assert!(!known.note_fetched(FILE, moment, is_valid));
    assert_eq!(stale_names(), [names(&["d"])]);
    // Nobody counts the names of a directory that was forgotten, or is not known.
    assert_eq!(note(&["e", "f"]), 2);
    assert_eq!(known.forget(FILE, 1), 2);
    assert_eq!((note(&["g"]), known.contains(FILE)), (0, false));
}

#[test]
fn what_the_mount_changes_itself_stays_valid() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    for _ in 0..3 {
        let moment = begin_change(&known, &table);
        let raised = change(&table, slot);
        known.end_change(FILE, moment, &raised, Instant::now());
        assert_eq!(scan(&known, &table), (vec![], false));
    }
    // A change of another's after them.
    change(&table, slot);
    assert_eq!(scan(&known, &table), (vec![FILE], false));
    // A trailer that names another slot, or none.
    for raised in [vec![(slot.number() + 1, Raised { previous: 0, word: u64::MAX >> 1 })], vec![]] {
        let moment = begin_change(&known, &table);
        change(&table, slot);
        known.end_change(FILE, moment, &raised, Instant::now());
        assert_eq!(scan(&known, &table), (vec![FILE], false));
    }
}

#[test]
fn a_change_by_another_before_during_or_after_ones_own_shows() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    for others in 0..3 {
        if others == 0 {
            change(&table, slot);
        }
        let moment = begin_change(&known, &table);
        if others == 1 {
            change(&table, slot);
        }
        let raised = change(&table, slot);
        if others == 2 {
            change(&table, slot);
        }
        known.end_change(FILE, moment, &raised, Instant::now());
        assert_eq!(scan(&known, &table), (vec![FILE], false), "{others}");
    }
}

#[test]
fn a_change_is_anothers_if_the_kernel_was_told_to_drop_the_inode_before_its_reply() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    let moment = begin_change(&known, &table);
    change(&table, slot);
    while scan(&known, &table).0.is_empty() {}
    // What the kernel fetches now may be of before this change or after it.
    let raised = change(&table, slot);
    known.end_change(FILE, moment, &raised, Instant::now());
    assert_eq!(scan(&known, &table), (vec![FILE], false));
}

#[test]
fn an_inode_is_left_out_of_ten_scans_while_a_change_of_the_mounts_own_is_under_way() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    let first = begin_change(&known, &table);
    let raised = change(&table, slot);
    assert_eq!(scan(&known, &table), (vec![], true), "it is looked at again");
    known.end_change(FILE, first, &raised, Instant::now());
    assert_eq!(scan(&known, &table), (vec![], false));
    // One that is not answered holds up nothing for long, nor do others that follow it.
    begin_change(&known, &table);
    change(&table, slot);
    for scans in 0..u32::from(POSTPONED_MAX) {
        assert_eq!(scan(&known, &table), (vec![], true), "{scans}");
        begin_change(&known, &table);
    }
    assert_eq!(scan(&known, &table), (vec![FILE], false));
}

#[test]
fn replies_to_changes_at_the_same_time_are_joined_in_any_order() {
    let table = table();
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for has_gap in [false, true] {
            let (known, slot, _) = looked_up(&table);
            let moment = begin_change(&known, &table);
            known.end_change(FILE, moment, &change(&table, slot), Instant::now());
            let moments = [(); 3].map(|()| begin_change(&known, &table));
            let raised = [0, 1, 2].map(|index| {
                if has_gap && index == 1 {
                    change(&table, slot);
                }
                change(&table, slot)
            });
            for index in order {
                known.end_change(FILE, moments[index], &raised[index], Instant::now());
            }
            let stale = if has_gap { vec![FILE] } else { vec![] };
            assert_eq!(scan(&known, &table), (stale, false), "{order:?} {has_gap}");
        }
    }
}

#[test]
fn a_change_whose_reply_the_kernel_has_not_taken_shows() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    for _ in 0..2 {
        let moment = begin_change(&known, &table);
        known.end_change(FILE, moment, &change(&table, slot), Instant::now());
    }
    known.disown(FILE);
    assert_eq!(scan(&known, &table), (vec![FILE], false));
}

/// What is fetched of an inode while the mount changes it may be of before the change, without that it shows.
#[test]
fn what_the_mount_has_changed_is_dropped_once_a_second_later_or_after_five_if_it_goes_on_changing() {
    let table = table();
    let (known, slot, begun) = (looked_up(&table).0, table.reader().slot(7), Instant::now());
    let at = |ms| begun + Duration::from_millis(ms);
    let change_at = |ms| {
        let moment = begin_change(&known, &table);
        known.end_change(FILE, moment, &change(&table, slot), at(ms));
    };
    let due = |ms| {
        let mut stale = Vec::new();
        known.take_due(at(ms), table.reader().now(), &mut stale);
        stale.len()
    };
    change_at(0);
    change_at(500);
    assert_eq!([due(600), due(999), due(1000), due(1001), due(9999)], [0, 0, 1, 0, 0]);
    // It goes on changing, and then is quiet.
    (0..30).for_each(|step| change_at(10_000 + 50 * step));
    assert_eq!([due(11_000), due(11_549), due(11_649), due(11_650)], [0, 0, 1, 0]);
    // It never is.
    for step in 0..100 {
        change_at(20_000 + 50 * step);
        assert_eq!(due(20_000 + 50 * step), 0, "{step}");
    }
    change_at(25_000);
    assert_eq!(due(25_100), 1);
    // One that is under way is not quiet; one that others have changed, or that is forgotten, has been dropped.
    change_at(30_000);
    let moment = begin_change(&known, &table);
    assert_eq!([due(31_000), due(34_000)], [0, 0]);
    known.end_change(FILE, moment, &vec![], at(34_000));
    change(&table, slot);
    assert_eq!(scan(&known, &table).0, [FILE]);
    assert_eq!(due(40_000), 0);
    change_at(50_000);
    known.forget(FILE, 1);
    assert_eq!(due(60_000), 0);
    assert!(known.drops.lock().is_empty());
}

#[test]
fn a_new_epoch_during_a_change_shows() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    let moment = begin_change(&known, &table);
    table.raise_epoch();
    while scan(&known, &table).0.is_empty() {}
    known.end_change(FILE, moment, &change(&table, slot), Instant::now());
    assert_eq!(scan(&known, &table).0, [FILE]);
}

#[test]
fn a_name_that_is_removed_is_not_handed_out() {
    let table = table();
    let (known, slot, _) = looked_up(&table);
    known.note_names(FILE, ["a", "b"].map(|name| name.as_bytes().into()).into_iter());
    assert_eq!(
        [known.drop_name(FILE, b"a"), known.drop_name(FILE, b"a"), known.drop_name(NodeId(77), b"b")],
        [1, 0, 0]
    );
    change(&table, slot);
    let (reader, mut stale) = (table.reader(), Vec::new());
    let is_valid = |slot, at, own: &_| reader.is_slot_valid_but_for(slot, at, own);
    known.take_stale(reader.now(), is_valid, |_| false, &mut stale);
    assert_eq!(stale.iter().map(|stale| stale.names.len()).collect::<Vec<_>>(), [1]);
}
