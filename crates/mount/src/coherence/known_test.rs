//! What is stale, and what is forgotten, without a kernel.

use transom_versions::{AtomicU64, Keys, Writer, layout};

use super::*;

const FILE: NodeId = NodeId(2);

fn table() -> Writer<Vec<AtomicU64>> {
    let words = layout::len_bytes(layout::SLOTS_LOG2_MIN) / size_of::<u64>();
    let memory = (0..words).map(|_| AtomicU64::new(0)).collect();
    Writer::format(memory, layout::SLOTS_LOG2_MIN, Keys(1, 2)).unwrap()
}

/// Changes the inode with that slot, as a daemon of the group.
fn change(table: &Writer<Vec<AtomicU64>>, slot: Slot) {
    table.raise(slot, table.next_stamp());
}

/// Returns what a scan finds stale, and whether something is hot.
fn scan(known: &KnownInodes, table: &Writer<Vec<AtomicU64>>) -> (Vec<NodeId>, bool) {
    let (reader, mut stale) = (table.reader(), Vec::new());
    let is_valid = |slot, fetched| reader.is_slot_valid(slot, fetched);
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
    let is_valid = |slot, fetched| table.reader().is_slot_valid(slot, fetched);
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
        known.take_stale(reader.now(), |slot, at| reader.is_slot_valid(slot, at), |_| false, &mut stale);
        stale.into_iter().map(|stale: StaleInode| stale.names).collect::<Vec<_>>()
    };
    let is_valid = |slot, fetched| table.reader().is_slot_valid(slot, fetched);
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
