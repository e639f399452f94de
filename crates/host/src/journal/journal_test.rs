//! A death is an end of the process without a destructor: here, the journal is opened again.

use super::*;

const QUEUES: usize = 2;

fn look(unique: u64, nodeid: u64, name: &[u8]) -> Record<'_> {
    Record::Look { unique, nodeid, count: 1, parent: 1, name, handle: None }
}

fn reopened(file: &JournalFile) -> Arc<Journal> {
    Arc::new(file.open().unwrap())
}

#[test]
fn what_was_recorded_is_there_after_a_death() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    let records = [
        Record::Begin { flags: 5 },
        look(1, 100, b"a"),
        look(2, 100, b"a"),
        look(3, 200, b"b"),
        Record::Forget { unique: 4, nodeid: 200, count: 1 },
        Record::Open { unique: 5, nodeid: 100, fh: 300, fd: 9, is_directory: false },
        Record::Rename { parent: 1, name: b"a", new_parent: 7, new_name: b"c", is_exchange: false },
        Record::Lock { nodeid: 100, owner: 1, fh: 300, fd: 8, pid: 2, start: 5, end: 9, is_exclusive: true },
        Record::Lock { nodeid: 100, owner: 2, fh: 300, fd: 7, pid: 2, start: 0, end: 1, is_exclusive: false },
        Record::EndOwner { nodeid: 100, owner: 2 },
    ];
    records.iter().for_each(|record| journal.append(record));
    // As it is, and rewritten, twice.
    for _ in 0..3 {
        let journal = reopened(&file);
        let session = journal.recover();
        assert_eq!(session.flags, Some(5));
        assert_eq!((session.nodeid_max, session.fh_max), (200, 300));
        let known = Known { lookups: 2, parent: 7, name: b"c".to_vec(), handle: None };
        assert_eq!(session.inodes.into_iter().collect::<Vec<_>>(), [(100, known)]);
        let opened = Opened { nodeid: 100, fd: 9, is_directory: false };
        assert_eq!(session.open.into_iter().collect::<Vec<_>>(), [(300, opened)]);
        assert_eq!(session.owners.len(), 1);
        let owner = &session.owners[&(100, 1)];
        assert_eq!((owner.fd, owner.pid, owner.has_several_pids, owner.files.as_slice()), (8, 2, false, &[300][..]));
        let ranges: Vec<_> = owner.ranges.iter().map(|(range, _)| (range.start(), range.end())).collect();
        assert_eq!(ranges, [(5, 9)]);
        journal.restart();
    }
    let journal = reopened(&file);
    journal.append(&Record::Close { fh: 300 });
    journal.append(&Record::Forget { unique: 6, nodeid: 100, count: 2 });
    let session = reopened(&file).recover();
    assert!(session.inodes.is_empty() && session.open.is_empty() && session.owners.is_empty());
    assert_eq!((session.nodeid_max, session.fh_max), (200, 300), "numbers are not given again");
    journal.append(&Record::End);
    assert_eq!(reopened(&file).recover().flags, None);
}

#[test]
fn a_request_that_is_served_again_has_changed_nothing_before() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    journal.append(&Record::Begin { flags: 0 });
    let queue = journal.queue(1);
    for (head, unique) in [(3, 30), (4, 40), (5, 50)] {
        queue.take(head, head + 1);
        queue.identify(head, unique);
    }
    journal.append(&look(30, 100, b"taken"));
    journal.append(&look(40, 200, b"answered"));
    journal.intend(30, &Intent::Append { size: 7 });
    journal.intend(40, &Intent::Append { size: 8 });
    queue.answer(4, 16);
    queue.answer(5, 32);
    queue.publish(5, 77);

    for _ in 0..2 {
        let journal = reopened(&file);
        let session = journal.recover();
        assert_eq!(session.inodes.keys().copied().collect::<Vec<_>>(), [200]);
        assert_eq!(session.nodeid_max, 200);
        // The process that goes on may die as well before it serves the request.
        journal.restart();
        assert_eq!(journal.earlier(30), Some(Intent::Append { size: 7 }));
        assert_eq!(journal.earlier(40), None);
        let stages: Vec<_> = journal.queue(1).left().iter().map(|left| (left.head, left.stage)).collect();
        assert_eq!(stages, [(3, Stage::Taken), (4, Stage::Answered(16)), (5, Stage::Publishing(32, 77))]);
        assert_eq!(journal.queue(1).position(), Some(6));
        assert_eq!(journal.queue(0).position(), None);
    }
}

#[test]
fn a_log_that_is_rewritten_while_requests_are_served_can_still_undo_them() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    journal.append(&Record::Begin { flags: 0 });
    let queue = journal.queue(0);
    queue.take(0, 1);
    queue.identify(0, 9);
    journal.append(&look(9, 100, b"name"));
    // Enough for many rewrites.
    let mut len_max = 0;
    for unique in 10..200_000 {
        journal.append(&look(unique, 200, b"other"));
        journal.append(&Record::Forget { unique, nodeid: 200, count: 1 });
        len_max = len_max.max(journal.lock().len);
    }
    assert!(len_max <= REWRITE_MIN, "{len_max}");
    assert!(reopened(&file).recover().inodes.is_empty());
    queue.answer(0, 16);
    assert_eq!(reopened(&file).recover().inodes.keys().copied().collect::<Vec<_>>(), [100]);
}

#[test]
fn requests_that_share_the_number_of_one_that_waits_take_a_bounded_amount() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    journal.append(&Record::Begin { flags: 0 });
    let queue = journal.queue(0);
    queue.take(0, 1);
    queue.identify(0, 9);
    for _ in 0..100_000 {
        journal.append(&look(9, 200, b"other"));
        journal.append(&Record::Forget { unique: 9, nodeid: 200, count: 1 });
    }
    let len = journal.lock().len;
    assert!(len <= REWRITE_MIN, "{len}");
}

#[test]
fn a_guest_that_knows_too_much_loses_its_session_by_the_next_death_and_not_before() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    journal.append(&Record::Begin { flags: 1 });
    let name = [b'n'; 255];
    for nodeid in 0..2 * (HALF_LEN / name.len()) as u64 {
        journal.append(&look(nodeid, nodeid, &name));
    }
    assert!(file.open().unwrap_err().to_string().contains("full"));
    // The next session begins with an empty journal.
    journal.append(&Record::Begin { flags: 2 });
    journal.append(&look(1, 100, b"name"));
    let session = reopened(&file).recover();
    assert_eq!((session.flags, session.inodes.len()), (Some(2), 1));
}

#[test]
fn a_record_counts_once_the_end_has_moved() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    journal.append(&Record::Begin { flags: 0 });
    let end = journal.area.word(END_AT);
    journal.append(&look(1, 100, b"name"));
    journal.area.set_word(END_AT, end);
    assert!(reopened(&file).recover().inodes.is_empty());
}

#[test]
fn a_chain_that_was_taken_just_now_moves_the_position() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    let queue = journal.queue(0);
    queue.take(7, 1);
    let before = journal.area.word(QUEUES_AT);
    queue.take(8, 2);
    // As if the process had died before the last store.
    journal.area.set_word(QUEUES_AT, before);
    assert_eq!(reopened(&file).queue(0).position(), Some(2));
    queue.free(7);
    queue.free(8);
    assert_eq!(reopened(&file).queue(0).position(), Some(1));
    queue.clear();
    assert_eq!(reopened(&file).queue(0).position(), None);
}

#[test]
fn an_exchange_moves_both_names() {
    let file = JournalFile::create(QUEUES).unwrap();
    let journal = reopened(&file);
    journal.append(&Record::Begin { flags: 0 });
    journal.append(&look(1, 100, b"a"));
    journal.append(&look(2, 200, b"b"));
    journal.append(&Record::Rename { parent: 1, name: b"a", new_parent: 1, new_name: b"b", is_exchange: true });
    let name_of = |nodeid| reopened(&file).recover().inodes[&nodeid].name.clone();
    assert_eq!((name_of(100), name_of(200)), (b"b".to_vec(), b"a".to_vec()));
    journal.append(&Record::Remove { parent: 1, name: b"b" });
    assert_eq!((name_of(100), name_of(200)), (Vec::new(), b"a".to_vec()));
}
