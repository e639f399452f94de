//! Models of a guest that keeps what it has cached over its own changes.

use loom::sync::atomic::AtomicU64;

use super::{Arc, INO, Memory, Model as Table, Mutex, SeqCst, model, thread};
use crate::{Moment, OwnChanges, Raised, Reader, Stamp};

struct Model {
    table: Arc<Table>,
    /// The last change that is complete, by its number.
    complete: AtomicU64,
    /// What the guest has cached: the number of the last change that it shows.
    cached: Mutex<(u64, Moment)>,
    own: OwnChanges,
}

impl Model {
    fn new() -> Arc<Self> {
        let table = Table::new();
        let cached = Mutex::new((0, table.reader().now()));
        Arc::new(Self { table, complete: AtomicU64::new(0), cached, own: OwnChanges::default() })
    }

    fn reader(&self) -> &Reader<Memory> {
        self.table.reader()
    }

    /// A daemon serves a change. Returns its number, and how the slot was raised.
    fn change(&self) -> (u64, Raised) {
        let mut file = self.table.file.lock().unwrap();
        *file += 1;
        let number = *file;
        drop(file);
        let raised = self.table.table.raise_from(self.table.slot(), self.table.table.next_stamp());
        self.complete.fetch_max(number, SeqCst);
        (number, raised)
    }

    /// The guest changes the file itself.
    fn change_own(&self) {
        let (number, raised) = self.change();
        self.cached.lock().unwrap().0 = number;
        self.own.join(raised);
    }

    /// The guest uses what it has cached. Returns whether it could.
    fn use_cached(&self) -> bool {
        let at_least = self.complete.load(SeqCst);
        let cached = self.cached.lock().unwrap();
        let is_valid = self.reader().is_slot_valid_but_for(self.reader().slot(INO), cached.1, &self.own);
        assert!(!is_valid || cached.0 >= at_least, "change {} is used after {at_least} was complete", cached.0);
        is_valid
    }
}

#[test]
fn loom_what_is_cached_survives_ones_own_changes_and_no_others() {
    model(|| {
        let model = Model::new();
        let other = Arc::clone(&model);
        let other = thread::spawn(move || _ = other.change());
        model.change_own();
        model.use_cached();
        other.join().unwrap();
        assert!(!model.use_cached(), "another guest has changed the file since it was fetched");
    });
}

#[test]
fn loom_a_use_during_ones_own_change_is_right() {
    model(|| {
        let model = Model::new();
        let own = Arc::clone(&model);
        let own = thread::spawn(move || own.change_own());
        model.use_cached();
        own.join().unwrap();
        assert!(model.use_cached(), "nobody else has changed the file");
    });
}

/// Two of a guest's own changes, whose replies are dealt with in any order.
#[test]
fn loom_a_range_is_used_only_without_a_gap() {
    model(|| {
        let (own, joins) = (Arc::new(OwnChanges::default()), Arc::new(Mutex::new(())));
        let noted = Arc::new([(); 2].map(|()| AtomicU64::new(0)));
        let threads = [(1, 2), (2, 3)].map(|(previous, word)| {
            let (own, joins, noted) = (Arc::clone(&own), Arc::clone(&joins), Arc::clone(&noted));
            thread::spawn(move || {
                let _joins = joins.lock().unwrap();
                noted[previous as usize - 1].store(1, SeqCst);
                own.join(Raised { previous, word });
            })
        });
        if own.explain(3, Stamp::new(1)) {
            assert!(noted.iter().all(|noted| noted.load(SeqCst) == 1), "the range was closed before both were noted");
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert!(own.explain(3, Stamp::new(1)) && !own.explain(3, Stamp::new(0)));
    });
}

/// The ends of a range are two words, and are never taken from two ranges.
#[test]
fn loom_the_ends_of_two_ranges_are_never_taken_for_one() {
    model(|| {
        let own = Arc::new(OwnChanges::default());
        own.join(Raised { previous: 1, word: 2 });
        let joining = Arc::clone(&own);
        let joining = thread::spawn(move || joining.join(Raised { previous: 3, word: 4 }));
        assert!(!own.explain(4, Stamp::new(2)), "3 is another guest's");
        joining.join().unwrap();
    });
}
