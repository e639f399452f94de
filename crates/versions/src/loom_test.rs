//! Models of readers and writers of one table. Every order of their accesses is tried. Those of mirrors
//! are in [`mirrors`], those of a guest's own changes in [`own`].
//!
//! A file is a value under a lock, as the host's kernel keeps it: a system call takes the lock. `done` tells a guest
//! that a change is complete, as a message from the guest that made it would.

extern crate std;

use std::{boxed::Box, sync::Arc};

use loom::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread,
};

use crate::{AtomicU64, Keys, Reader, Slot, Writer, layout};

#[path = "loom_mirror_test.rs"]
mod mirrors;
#[path = "loom_own_test.rs"]
mod own;

type Memory = Box<[AtomicU64]>;

const INO: u64 = 7;

struct Model {
    table: Writer<Memory>,
    file: Mutex<u64>,
    done: AtomicBool,
}

impl Model {
    fn new() -> Arc<Self> {
        let words = (0..layout::len_bytes(layout::SLOTS_LOG2_MIN) / 8).map(|_| AtomicU64::new(0)).collect();
        let table = Writer::format(words, layout::SLOTS_LOG2_MIN, Keys(1, 2)).unwrap();
        Arc::new(Self { table, file: Mutex::new(0), done: AtomicBool::new(false) })
    }

    fn reader(&self) -> &Reader<Memory> {
        self.table.reader()
    }

    fn slot(&self) -> Slot {
        self.reader().slot(INO)
    }

    /// A daemon serves a change.
    fn change(&self) {
        *self.file.lock().unwrap() += 1;
        self.table.raise(self.slot(), self.table.next_stamp());
    }

    /// A guest fetches, and later uses what it has cached. Whatever was complete before the use, it sees.
    fn fetch_and_use(&self) {
        let moment = self.reader().now();
        let cached = *self.file.lock().unwrap();
        let is_done = self.done.load(SeqCst);
        if self.reader().is_valid(INO, moment) && is_done {
            assert_eq!(cached, *self.file.lock().unwrap(), "a stale answer after a completed change");
        }
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 100_000;
    model.check(run);
}

#[test]
fn loom_a_completed_change_is_never_missed() {
    model(|| {
        let model = Model::new();
        let writer = Arc::clone(&model);
        let writer = thread::spawn(move || {
            writer.change();
            writer.done.store(true, SeqCst);
        });
        model.fetch_and_use();
        writer.join().unwrap();
        model.fetch_and_use();
    });
}

#[test]
fn loom_of_two_changes_of_one_slot_none_is_lost() {
    model(|| {
        let model = Model::new();
        let writers = [(); 2].map(|()| {
            let writer = Arc::clone(&model);
            thread::spawn(move || {
                let before = writer.reader().now();
                writer.change();
                assert!(!writer.reader().is_valid(INO, before), "a change must invalidate what was fetched before it");
            })
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(model.reader().is_valid(INO, model.reader().now()), "nothing is hot, so all can be cached again");
    });
}

/// Two daemons whose guests open and release the same file. While one holds it open, it is hot.
#[test]
fn loom_a_slot_is_hot_while_any_daemon_needs_it() {
    model(|| {
        let model = Model::new();
        let counts: Arc<[AtomicU32; 2]> = Arc::new([(); 2].map(|()| AtomicU32::new(0)));
        let open = |me: usize| {
            let (model, counts) = (Arc::clone(&model), Arc::clone(&counts));
            move || {
                counts[me].fetch_add(1, SeqCst);
                model.table.set_hot(model.slot());
                assert!(!model.reader().is_valid(INO, model.reader().now()), "held and not hot");
                counts[me].fetch_sub(1, SeqCst);
                model.table.clear_hot(model.slot(), || counts[1 - me].load(SeqCst) != 0);
            }
        };
        let other = thread::spawn(open(1));
        open(0)();
        other.join().unwrap();
        assert!(model.reader().is_valid(INO, model.reader().now()), "released by all and still hot");
    });
}

/// A store through a mapping has no stamp; the end of the heat is the stamp of all of them.
#[test]
fn loom_what_was_fetched_during_the_heat_is_not_used_after_it() {
    model(|| {
        let model = Model::new();
        model.table.set_hot(model.slot());
        let storing = Arc::clone(&model);
        let storing = thread::spawn(move || {
            *storing.file.lock().unwrap() += 1;
            storing.table.clear_hot(storing.slot(), || false);
            storing.done.store(true, SeqCst);
        });
        model.fetch_and_use();
        storing.join().unwrap();
    });
}

/// A change keeps the heat, whichever comes first.
#[test]
fn loom_a_stamp_does_not_end_the_heat() {
    model(|| {
        let model = Model::new();
        let changing = Arc::clone(&model);
        let changing = thread::spawn(move || changing.change());
        model.table.set_hot(model.slot());
        assert!(!model.reader().is_valid(INO, model.reader().now()));
        changing.join().unwrap();
        assert!(!model.reader().is_valid(INO, model.reader().now()));
    });
}

/// A daemon dies between system call and stamp. Once a peer has raised the epoch, nothing of before is used.
#[test]
fn loom_after_the_epoch_nothing_is_used_that_was_fetched_before() {
    model(|| {
        let model = Model::new();
        let peer = Arc::clone(&model);
        let peer = thread::spawn(move || {
            *peer.file.lock().unwrap() += 1;
            peer.table.raise_epoch();
            peer.done.store(true, SeqCst);
        });
        model.fetch_and_use();
        peer.join().unwrap();
        model.fetch_and_use();
    });
}
