//! The state of the model, and its steps. A step is one access to shared memory, one system call, or one message.

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

/// A protocol that lacks one rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    StampBeforeTheSystemCall,
    ReplyBeforeTheStamp,
    ClockReadAfterTheFetch,
    EpochReadAfterTheFetch,
    SlotsGoBack,
    StampsEndTheHeat,
    UseIgnoresTheSlot,
    UseIgnoresTheHeat,
    UseIgnoresTheEpoch,
    NoEpochAfterADeath,
    HeatEndsWithoutAStamp,
    HeatEndsThoughOthersNeedIt,
    HeatOfAHotSlotLeavesItsWord,
    HeatAfterTheReply,
    HeatEndsWithTheDaemon,
    OwnChangesIgnoreWhatLiesBetween,
    OwnPreviousIsReadBeforeTheRaise,
    OwnPreviousIsTheClock,
    OwnChangesAreJoinedBeforeTheyAreApplied,
    OwnChangesAreNotApplied,
    OwnChangesCoverTheSlotAtAnyStamp,
    OwnChangesCoverAHotSlot,
    OwnChangesCoverAnOlderFetch,
    OwnChangesCoverAnotherEpoch,
    OwnChangesArePutOverALaterFetch,
    RepliesFromBeforeOwnChangesAreKept,
    RaisesLeaveTheirStamp,
}

impl Mutant {
    pub(crate) const ALL: &[Self] = &[
        Self::StampBeforeTheSystemCall,
        Self::ReplyBeforeTheStamp,
        Self::ClockReadAfterTheFetch,
        Self::EpochReadAfterTheFetch,
        Self::SlotsGoBack,
        Self::StampsEndTheHeat,
        Self::UseIgnoresTheSlot,
        Self::UseIgnoresTheHeat,
        Self::UseIgnoresTheEpoch,
        Self::NoEpochAfterADeath,
        Self::HeatEndsWithoutAStamp,
        Self::HeatEndsThoughOthersNeedIt,
        Self::HeatOfAHotSlotLeavesItsWord,
        Self::HeatAfterTheReply,
        Self::HeatEndsWithTheDaemon,
        Self::OwnChangesIgnoreWhatLiesBetween,
        Self::OwnPreviousIsReadBeforeTheRaise,
        Self::OwnPreviousIsTheClock,
        Self::OwnChangesAreJoinedBeforeTheyAreApplied,
        Self::OwnChangesAreNotApplied,
        Self::OwnChangesCoverTheSlotAtAnyStamp,
        Self::OwnChangesCoverAHotSlot,
        Self::OwnChangesCoverAnOlderFetch,
        Self::OwnChangesCoverAnotherEpoch,
        Self::OwnChangesArePutOverALaterFetch,
        Self::RepliesFromBeforeOwnChangesAreKept,
        Self::RaisesLeaveTheirStamp,
    ];
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

/// What a daemon is doing for its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Serving {
    Nothing,
    /// The file was changed to that version.
    Changed(u8),
    Stamped {
        version: u8,
        stamp: u8,
        /// The slot's stamp at that moment, for a mutant.
        seen: u8,
    },
    Raised(u8, Raise),
    /// A stamp was taken before the change.
    Early(u8),
    /// The need for heat is announced.
    Announced,
    Heating(u8),
    Heated,
    /// The need is withdrawn.
    Withdrawn,
    Looked(Word),
    Alone(Word),
    Cooling {
        seen: Word,
        stamp: u8,
    },
    Dead,
}

/// The stamps of a slot before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Raise {
    previous: u8,
    new: u8,
    /// The slot is hot: the reply says nothing.
    is_hot: bool,
}

/// A change that the guest that reads has sent itself, and not yet taken note of. Two may be in flight, and their
/// replies are dealt with in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Flight {
    Sent {
        /// Something was requested since.
        is_fetching: bool,
    },
    Replied {
        is_fetching: bool,
        version: u8,
        raise: Raise,
    },
    /// What is cached shows the change.
    Applied(Raise),
    /// Of a mutant.
    Joined {
        version: u8,
    },
}

/// What a guest's reader is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reading {
    Nothing,
    Epoch(u8),
    Moment {
        epoch: u8,
        clock: u8,
    },
    /// The reply is on its way.
    Fetched(Cached),
    /// Of mutants: what was fetched, and what of the moment is known.
    Late {
        version: u8,
        epoch: Option<u8>,
        clock: Option<u8>,
    },
    /// A use has begun: at least that version must be seen.
    Checking {
        at_least: u8,
        is_slot_valid: bool,
    },
}

/// What a guest has cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Cached {
    version: u8,
    epoch: u8,
    clock: u8,
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

    /// Begins a request, or stores through a mapping.
    fn begin(&self, at: usize, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
        let side = &self.sides[at];
        if side.is_open && self.left.stores > 0 {
            visit(self.with(|next| {
                next.left.stores -= 1;
                next.version += 1;
                next.complete = next.version;
            }));
        }
        if side.serving != Serving::Nothing {
            return;
        }
        if self.left.changes[at] > 0 && (at == 0 || self.flights.contains(&None)) {
            visit(self.with(|next| {
                next.left.changes[at] -= 1;
                if at == 1
                    && let Some(free) = next.flights.iter_mut().find(|flight| flight.is_none())
                {
                    *free = Some(Flight::Sent { is_fetching: false });
                }
                if mutant == Some(Mutant::StampBeforeTheSystemCall) {
                    next.clock += 1;
                    next.sides[at].serving = Serving::Early(next.clock);
                } else {
                    next.version += 1;
                    next.sides[at].serving = Serving::Changed(next.version);
                }
            }));
        }
        if self.left.opens[at] > 0 && !side.is_open {
            visit(self.with(|next| {
                next.left.opens[at] -= 1;
                next.sides[at].heat += 1;
                next.sides[at].is_open = mutant == Some(Mutant::HeatAfterTheReply);
                next.sides[at].serving = Serving::Announced;
            }));
        }
        if side.is_open {
            visit(self.with(|next| {
                next.sides[at].is_open = false;
                next.sides[at].heat -= 1;
                next.sides[at].serving = Serving::Withdrawn;
            }));
        }
    }

    /// Goes on with a request.
    fn serve(&self, at: usize, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
        let go = |serving| self.with(|next| next.sides[at].serving = serving);
        let stamped = |serving: &dyn Fn(u8) -> Serving| {
            self.with(|next| {
                next.clock += 1;
                next.sides[at].serving = serving(next.clock);
            })
        };
        match self.sides[at].serving {
            Serving::Nothing | Serving::Dead => {}
            Serving::Early(stamp) => visit(self.with(|next| {
                let raise = next.raise(stamp, mutant);
                next.version += 1;
                next.sides[at].serving = Serving::Raised(next.version, raise);
            })),
            Serving::Changed(version) => {
                if mutant == Some(Mutant::ReplyBeforeTheStamp) {
                    visit(self.with(|next| {
                        next.complete = next.complete.max(version);
                        next.clock += 1;
                        next.sides[at].serving = Serving::Stamped { version, stamp: next.clock, seen: next.slot.stamp };
                    }));
                } else {
                    let seen = self.slot.stamp;
                    visit(stamped(&|stamp| Serving::Stamped { version, stamp, seen }));
                }
            }
            Serving::Stamped { version, stamp, seen } => visit(self.with(|next| {
                let mut raise = next.raise(stamp, mutant);
                match mutant {
                    Some(Mutant::OwnPreviousIsReadBeforeTheRaise) => raise.previous = seen,
                    Some(Mutant::OwnPreviousIsTheClock) => raise.previous = stamp - 1,
                    _ => {}
                }
                next.sides[at].serving = Serving::Raised(version, raise);
            })),
            Serving::Raised(version, raise) => visit(self.with(|next| {
                next.complete = next.complete.max(version);
                next.sides[at].serving = Serving::Nothing;
                // A daemon answers in its order, so the one that was sent first.
                if at == 1
                    && let Some(flight) = next.flights.iter_mut().flatten().find(|at| matches!(at, Flight::Sent { .. }))
                    && let Flight::Sent { is_fetching } = *flight
                {
                    *flight = Flight::Replied { is_fetching, version, raise };
                }
            })),
            Serving::Announced => visit(stamped(&Serving::Heating)),
            Serving::Heating(stamp) => visit(self.with(|next| {
                if !(mutant == Some(Mutant::HeatOfAHotSlotLeavesItsWord) && next.slot.is_hot) {
                    next.slot = Word { is_hot: true, stamp: next.slot.stamp.max(stamp) };
                }
                next.sides[at].serving = Serving::Heated;
            })),
            Serving::Heated => visit(self.with(|next| {
                next.sides[at].is_open |= mutant != Some(Mutant::HeatAfterTheReply);
                next.sides[at].serving = Serving::Nothing;
            })),
            Serving::Withdrawn => visit(go(Serving::Looked(self.slot))),
            Serving::Looked(seen) => {
                let is_held = self.orphans + self.sides[0].heat + self.sides[1].heat > 0;
                let ends = !is_held || mutant == Some(Mutant::HeatEndsThoughOthersNeedIt);
                visit(go(if ends { Serving::Alone(seen) } else { Serving::Nothing }));
            }
            Serving::Alone(seen) => visit(match mutant {
                Some(Mutant::HeatEndsWithoutAStamp) => go(Serving::Cooling { seen, stamp: seen.stamp }),
                _ => stamped(&|stamp| Serving::Cooling { seen, stamp }),
            }),
            Serving::Cooling { seen, .. } if seen != self.slot => visit(go(Serving::Withdrawn)),
            Serving::Cooling { seen, stamp } => visit(self.with(|next| {
                next.slot = Word { is_hot: false, stamp: seen.stamp.max(stamp) };
                next.sides[at].serving = Serving::Nothing;
            })),
        }
    }

    /// Goes on with a fetch. What is in flight meanwhile knows it.
    fn begin_fetch(&mut self, at: usize, reading: Reading) {
        self.sides[at].reading = reading;
        for flight in self.flights.iter_mut().flatten() {
            if let Flight::Sent { is_fetching } | Flight::Replied { is_fetching, .. } = flight {
                *is_fetching = true;
            }
        }
    }

    /// Raises the slot after a change, in one step. Every change sets a stamp of its own.
    fn raise(&mut self, stamp: u8, mutant: Option<Mutant>) -> Raise {
        let Word { is_hot, stamp: previous } = self.slot;
        let mut new = stamp;
        if mutant != Some(Mutant::SlotsGoBack) && previous >= stamp {
            new = previous;
            if mutant != Some(Mutant::RaisesLeaveTheirStamp) {
                self.clock += 1;
                new = self.clock;
            }
        }
        self.slot = Word { is_hot: is_hot && mutant != Some(Mutant::StampsEndTheHeat), stamp: new };
        Raise { previous, new, is_hot }
    }

    /// Takes note of a change that guest 1 has made itself, once its reply has come.
    fn note_own(&self, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
        for at in 0..2 {
            let Some(flight) = self.flights[at] else { continue };
            match flight {
                Flight::Sent { .. } => {}
                Flight::Replied { is_fetching, version, raise } => visit(self.with(|next| {
                    if mutant == Some(Mutant::OwnChangesAreJoinedBeforeTheyAreApplied) {
                        next.join(raise, mutant);
                        next.flights[at] = Some(Flight::Joined { version });
                    } else {
                        next.apply(version, is_fetching, mutant);
                        next.flights[at] = Some(Flight::Applied(raise));
                    }
                })),
                Flight::Applied(raise) => visit(self.with(|next| {
                    next.join(raise, mutant);
                    next.flights[at] = None;
                })),
                Flight::Joined { version } => visit(self.with(|next| {
                    next.apply(version, false, mutant);
                    next.flights[at] = None;
                })),
            }
        }
    }

    /// Has what is cached show the guest's own change, unless it shows a later one of the guest's already.
    fn apply(&mut self, version: u8, is_fetching: bool, mutant: Option<Mutant>) {
        if mutant == Some(Mutant::OwnChangesAreNotApplied) || version < self.applied {
            return;
        }
        self.applied = version;
        let reading = &mut self.sides[1].reading;
        let is_fetch = !matches!(reading, Reading::Checking { .. });
        if is_fetch && mutant != Some(Mutant::RepliesFromBeforeOwnChangesAreKept) {
            // The reply to a request from before the end of the change is not kept.
            *reading = Reading::Nothing;
        }
        let cached = &mut self.sides[1].cached;
        if is_fetching && mutant != Some(Mutant::OwnChangesArePutOverALaterFetch) {
            *cached = None;
        } else if let Some(cached) = cached {
            cached.version = version;
        }
    }

    /// Adds the guest's own change to the range of its own.
    fn join(&mut self, Raise { previous, new, is_hot }: Raise, mutant: Option<Mutant>) {
        if is_hot && mutant != Some(Mutant::OwnChangesCoverAHotSlot) {
            return;
        }
        self.own = match self.own {
            Some((begin, end)) if previous == end => Some((begin, new)),
            Some((begin, end)) if new == begin => Some((previous, end)),
            Some((begin, _)) if mutant == Some(Mutant::OwnChangesIgnoreWhatLiesBetween) => Some((begin, new)),
            Some((begin, _)) if new < begin => self.own,
            Some((_, end)) if previous < end => None,
            _ => Some((previous, new)),
        };
    }

    /// Returns whether all that has raised the slot since `clock` was the guest's own.
    fn is_own(&self, clock: u8, mutant: Option<Mutant>) -> bool {
        self.own.is_some_and(|(begin, end)| {
            let is_cold = !self.slot.is_hot || mutant == Some(Mutant::OwnChangesCoverAHotSlot);
            let is_at_end = self.slot.stamp == end || mutant == Some(Mutant::OwnChangesCoverTheSlotAtAnyStamp);
            let is_since = begin <= clock || mutant == Some(Mutant::OwnChangesCoverAnOlderFetch);
            is_cold && is_at_end && is_since
        })
    }

    /// Fetches, or uses what was fetched.
    fn read(&self, at: usize, mutant: Option<Mutant>, visit: &mut impl FnMut(Self, Option<Used>)) {
        let side = &self.sides[at];
        let go = |reading| self.with(|next| next.sides[at].reading = reading);
        let cache = |cached| {
            self.with(|next| {
                next.sides[at].cached = Some(cached);
                next.sides[at].reading = Reading::Nothing;
            })
        };
        let version = self.version;
        match side.reading {
            Reading::Nothing => {
                if side.serving != Serving::Dead {
                    let reading = match mutant {
                        Some(Mutant::EpochReadAfterTheFetch) => {
                            Reading::Late { version, epoch: None, clock: Some(self.clock) }
                        }
                        Some(Mutant::ClockReadAfterTheFetch) => {
                            Reading::Late { version, epoch: Some(self.epoch), clock: None }
                        }
                        _ => Reading::Epoch(self.epoch),
                    };
                    visit(self.with(|next| next.begin_fetch(at, reading)), None);
                }
                if let Some(cached) = side.cached {
                    let is_heeded = mutant != Some(Mutant::UseIgnoresTheHeat);
                    let is_hot = self.slot.is_hot && is_heeded;
                    let is_own = self.is_own(cached.clock, mutant);
                    let is_slot_valid = !is_hot && self.slot.stamp <= cached.clock || is_own;
                    let is_slot_valid = is_slot_valid || mutant == Some(Mutant::UseIgnoresTheSlot);
                    visit(go(Reading::Checking { at_least: self.complete, is_slot_valid }), None);
                }
            }
            Reading::Epoch(epoch) => {
                visit(self.with(|next| next.begin_fetch(at, Reading::Moment { epoch, clock: self.clock })), None);
            }
            Reading::Moment { epoch, clock } => visit(go(Reading::Fetched(Cached { version, epoch, clock })), None),
            Reading::Fetched(cached) => visit(cache(cached), None),
            Reading::Late { version, epoch, clock } => {
                let (epoch, clock) = (epoch.unwrap_or(self.epoch), clock.unwrap_or(self.clock));
                visit(cache(Cached { version, epoch, clock }), None);
            }
            Reading::Checking { at_least, is_slot_valid } => {
                let Some(cached) = side.cached else { return };
                let mutants = [Mutant::UseIgnoresTheEpoch, Mutant::OwnChangesCoverAnotherEpoch];
                let is_ignored = match mutants.iter().position(|&at| Some(at) == mutant) {
                    Some(0) => true,
                    Some(_) => self.is_own(cached.clock, None),
                    None => false,
                };
                let is_epoch_valid = cached.epoch == self.epoch || is_ignored;
                let used = match is_slot_valid && is_epoch_valid {
                    false => Used::Refused,
                    true if cached.version < at_least => Used::Stale,
                    true => Used::Right,
                };
                visit(go(Reading::Nothing), Some(used));
            }
        }
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
