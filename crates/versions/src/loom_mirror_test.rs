//! Models of a guest that reads a mirror, while daemons write the table and the mirror. Of each rule there is a mutant
//! that breaks it, and has to give a stale answer in some order.

use super::*;
use crate::Mirror;

/// The mirror's memory, which the reader and the writers share.
#[derive(Clone)]
struct Shared(Arc<Memory>);

impl AsRef<[AtomicU64]> for Shared {
    fn as_ref(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// A table with a mirror.
struct Mirrored {
    model: Arc<Model>,
    mirror: Mirror<Shared>,
    memory: Shared,
}

impl Mirrored {
    fn new() -> Arc<Self> {
        let model = Model::new();
        let memory: Memory = (0..layout::len_bytes(layout::SLOTS_LOG2_MIN) / 8).map(|_| AtomicU64::new(0)).collect();
        let memory = Shared(Arc::new(memory));
        let mirror = Mirror::new(memory.clone(), &model.table).unwrap();
        model.table.copy_identity(memory.as_ref());
        Arc::new(Self { model, mirror, memory })
    }

    /// A daemon changes the file and stamps it in the table. Returns the new word of the slot.
    fn change(&self) -> u64 {
        *self.model.file.lock().unwrap() += 1;
        self.model.table.raise(self.model.slot(), self.model.table.next_stamp())
    }

    /// The second half of the stamp: the mirror, its slot before its clock.
    fn follow(&self, word: u64) {
        self.mirror.follow_slot(self.model.slot(), word);
        self.mirror.follow_clock(&self.model.table);
    }

    fn reply(&self) {
        self.model.done.store(true, SeqCst);
    }

    /// As [`Model::fetch_and_use`], by a guest that has the mirror only.
    fn fetch_and_use(&self) {
        let reader = Reader::new(self.memory.clone()).unwrap();
        let moment = reader.now();
        let cached = *self.model.file.lock().unwrap();
        let is_done = self.model.done.load(SeqCst);
        if reader.is_valid(INO, moment) && is_done {
            assert_eq!(cached, *self.model.file.lock().unwrap(), "a stale answer after a completed change");
        }
    }
}

/// Runs `writers` beside a guest that fetches and uses, and has the guest look again when they have ended.
fn beside_a_guest<const N: usize>(writers: [fn(&Mirrored); N]) {
    model(move || {
        let mirrored = Mirrored::new();
        let start = |writer: fn(&Mirrored)| {
            let mirrored = Arc::clone(&mirrored);
            thread::spawn(move || writer(&mirrored))
        };
        let writers = writers.map(start);
        mirrored.fetch_and_use();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
}

#[test]
fn loom_a_completed_change_is_never_missed_in_a_mirror() {
    beside_a_guest([|at| {
        let word = at.change();
        at.follow(word);
        at.reply();
    }]);
}

#[test]
#[should_panic(expected = "a stale answer after a completed change")]
fn loom_mutant_a_reply_before_the_mirror_is_written() {
    beside_a_guest([|at| {
        let word = at.change();
        at.reply();
        at.follow(word);
    }]);
}

#[test]
#[should_panic(expected = "a stale answer after a completed change")]
fn loom_mutant_a_mirror_that_nobody_writes() {
    beside_a_guest([|at| {
        at.change();
        at.reply();
    }]);
}

/// Two daemons change one file. The reply of the one that is overtaken says as much as that of the other.
#[test]
fn loom_two_daemons_write_one_mirror() {
    let change: fn(&Mirrored) = |at| {
        let word = at.change();
        at.follow(word);
    };
    model(move || {
        let mirrored = Mirrored::new();
        let other = Arc::clone(&mirrored);
        let other = thread::spawn(move || change(&other));
        let before = Reader::new(mirrored.memory.clone()).unwrap().now();
        change(&mirrored);
        let reader = Reader::new(mirrored.memory.clone()).unwrap();
        assert!(!reader.is_valid(INO, before), "a change must invalidate what was fetched before it");
        other.join().unwrap();
        let slot = mirrored.model.slot();
        assert_eq!(
            mirrored.mirror.word_of(slot),
            mirrored.model.table.word_of(slot),
            "the mirror ends up as the table"
        );
        assert!(reader.is_valid(INO, reader.now()), "what is fetched now can be cached");
    });
}

/// One daemon heats the slot and another one stamps it: the mirror ends up as the table.
#[test]
fn loom_two_writers_leave_a_mirror_as_the_table() {
    model(|| {
        let mirrored = Mirrored::new();
        let heating = Arc::clone(&mirrored);
        let heating = thread::spawn(move || {
            let Mirrored { model, mirror, .. } = &*heating;
            mirror.follow_slot(model.slot(), model.table.set_hot(model.slot()));
        });
        let Mirrored { model, mirror, .. } = &*mirrored;
        mirror.follow_slot(model.slot(), model.table.raise(model.slot(), model.table.next_stamp()));
        heating.join().unwrap();
        assert_eq!(mirror.word_of(model.slot()), model.table.word_of(model.slot()));
    });
}

/// A daemon dies when it has written the table and not the mirror. Once a peer has raised the epoch of both, nothing of
/// before is used. The reply is that of the peer: from then on whoever asks is told of the change.
#[test]
fn loom_a_daemon_dies_between_table_and_mirror() {
    beside_a_guest([|at| {
        at.change();
        at.model.table.raise_epoch();
        at.mirror.follow_header(&at.model.table);
        at.reply();
    }]);
}

#[test]
#[should_panic(expected = "a stale answer after a completed change")]
fn loom_mutant_the_epoch_of_the_mirror_is_left_out() {
    beside_a_guest([|at| {
        at.change();
        at.model.table.raise_epoch();
        at.reply();
    }]);
}

/// A new mirror is filled while others write: what they change meanwhile is in it, whoever comes first.
#[test]
fn loom_a_mirror_is_filled_while_it_is_written() {
    model(|| {
        let mirrored = Mirrored::new();
        let writing = Arc::clone(&mirrored);
        let writing = thread::spawn(move || {
            let word = writing.change();
            writing.follow(word);
        });
        let Mirrored { model, mirror, .. } = &*mirrored;
        // As `Mirror::fill` does for each slot, of which one is enough here.
        mirror.follow_slot(model.slot(), model.table.word_of(model.slot()));
        mirror.follow_header(&model.table);
        writing.join().unwrap();
        assert_eq!(mirror.word_of(model.slot()), model.table.word_of(model.slot()));
    });
}

/// Two daemons change the flags, and a third one attaches the mirror: it ends up with the flags of the table.
#[test]
fn loom_the_flags_of_a_mirror_end_up_as_the_tables() {
    model(|| {
        let mirrored = Mirrored::new();
        mirrored.model.table.set_host_changes(true);
        let changing = Arc::clone(&mirrored);
        let changing = thread::spawn(move || {
            changing.model.table.set_host_changes(false);
            changing.mirror.follow_header(&changing.model.table);
        });
        // As whoever attaches the mirror, or has changed something before.
        mirrored.mirror.follow_header(&mirrored.model.table);
        changing.join().unwrap();
        let reader = Reader::new(mirrored.memory.clone()).unwrap();
        assert!(!reader.stamps_host_changes(), "the mirror promises what the table does not");
    });
}

/// A guest that sees the new epoch sees the flags that it was raised for.
#[test]
fn loom_flags_are_not_older_than_the_epoch() {
    model(|| {
        let mirrored = Mirrored::new();
        mirrored.model.table.set_host_changes(true);
        mirrored.mirror.follow_header(&mirrored.model.table);
        let before = Reader::new(mirrored.memory.clone()).unwrap().now().epoch;
        let changing = Arc::clone(&mirrored);
        let changing = thread::spawn(move || {
            changing.model.table.set_host_changes(false);
            changing.model.table.raise_epoch();
            changing.mirror.follow_header(&changing.model.table);
        });
        let reader = Reader::new(mirrored.memory.clone()).unwrap();
        if reader.now().epoch != before {
            assert!(!reader.stamps_host_changes());
        }
        changing.join().unwrap();
    });
}
