//! The state of the model, and its steps. A step is one access to shared memory, one system call, or one message.

mod mutant;
mod own;
mod reading;
mod serving;

pub(crate) use mutant::Mutant;

use own::Flight;
use reading::{Cached, Reading};
use serving::Serving;

/// What may happen in one search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Changes by request, for each guest.
    pub(crate) changes: [u8; 2],
    /// Opens for writing of a mapped file, for each guest.
    pub(crate) opens: [u8; 2],
    /// Stores through mappings.
    pub(crate) stores: u8,
    /// Deaths of daemon 0.
    pub(crate) deaths: u8,
}

/// How a use of something cached ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Used {
    Right,
    Stale,
    /// The table said that it is invalid.
    Refused,
}

/// The word of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Word {
    is_hot: bool,
    stamp: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Side {
    serving: Serving,
    reading: Reading,
    cached: Option<Cached>,
    /// The guest has the file open for writing, and mapped.
    is_open: bool,
    /// The daemon's count of hot files.
    heat: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    left: Budget,
    /// The file: the number of changes so far.
    version: u8,
    /// The last version whose change is complete: nobody may use an older one.
    complete: u8,
    slot: Word,
    clock: u8,
    epoch: u8,
    orphans: u8,
    /// The death was noticed.
    is_buried: bool,
    sides: [Side; 2],
    /// Of guest 1, which reads: its own changes in flight, and the range of stamps that are its own.
    flights: [Option<Flight>; 2],
    own: Option<(u8, u8)>,
    /// The last of its own changes that what it has cached shows.
    applied: u8,
}

impl State {
    pub(crate) fn new(left: Budget) -> Self {
        let side = Side { serving: Serving::Nothing, reading: Reading::Nothing, cached: None, is_open: false, heat: 0 };
        let slot = Word { is_hot: false, stamp: 0 };
        Self {
            left,
            version: 0,
            complete: 0,
            slot,
            clock: 0,
            epoch: 0,
            orphans: 0,
            is_buried: false,
            sides: [side; 2],
            flights: [None; 2],
            own: None,
            applied: 0,
        }
    }

    /// Calls `visit` with every state that may come next.
    pub(crate) fn each_next(&self, mutant: Option<Mutant>, visit: &mut impl FnMut(Self, Option<Used>)) {
        for at in 0..2 {
            self.serve(at, mutant, &mut |next| visit(next, None));
            self.begin(at, mutant, &mut |next| visit(next, None));
        }
        // The sides differ only in who may die: one that reads is enough, and keeps the search small.
        self.read(1, mutant, visit);
        self.note_own(mutant, &mut |next| visit(next, None));
        self.die(mutant, &mut |next| visit(next, None));
    }

    fn with(&self, change: impl FnOnce(&mut Self)) -> Self {
        let mut next = self.clone();
        change(&mut next);
        next
    }

    /// Daemon 0 dies, or the other one notices. What the dead one had begun counts as complete from then on.
    fn die(&self, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
        let [dead, peer] = &self.sides;
        if dead.serving != Serving::Dead && self.left.deaths > 0 {
            visit(self.with(|next| {
                next.left.deaths -= 1;
                next.sides[0].serving = Serving::Dead;
            }));
        }
        if dead.serving == Serving::Dead && peer.serving != Serving::Dead && !self.is_buried {
            visit(self.with(|next| {
                if next.sides[0].heat > 0 && mutant != Some(Mutant::HeatEndsWithTheDaemon) {
                    next.orphans = 1;
                    next.clock += 1;
                    next.slot = Word { is_hot: true, stamp: next.clock };
                }
                next.sides[0].heat = 0;
                if mutant != Some(Mutant::NoEpochAfterADeath) {
                    next.epoch += 1;
                }
                next.complete = next.version;
                next.is_buried = true;
            }));
        }
    }
}
