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
    },
    Raised(u8),
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

/// What a guest's reader is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Reading {
    Nothing,
    Epoch(u8),
    Moment {
        epoch: u8,
        clock: u8,
    },
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
}

impl State {
    pub(crate) fn new(left: Budget) -> Self {
        let side = Side { serving: Serving::Nothing, reading: Reading::Nothing, cached: None, is_open: false, heat: 0 };
        let slot = Word { is_hot: false, stamp: 0 };
        Self { left, version: 0, complete: 0, slot, clock: 0, epoch: 0, orphans: 0, is_buried: false, sides: [side; 2] }
    }

    /// Calls `visit` with every state that may come next.
    pub(crate) fn each_next(&self, mutant: Option<Mutant>, visit: &mut impl FnMut(Self, Option<Used>)) {
        for at in 0..2 {
            self.serve(at, mutant, &mut |next| visit(next, None));
            self.begin(at, mutant, &mut |next| visit(next, None));
        }
        // The sides differ only in who may die: one that reads is enough, and keeps the search small.
        self.read(1, mutant, visit);
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
        if self.left.changes[at] > 0 {
            visit(self.with(|next| {
                next.left.changes[at] -= 1;
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
                next.slot.stamp = next.slot.stamp.max(stamp);
                next.version += 1;
                next.sides[at].serving = Serving::Raised(next.version);
            })),
            Serving::Changed(version) => {
                if mutant == Some(Mutant::ReplyBeforeTheStamp) {
                    visit(self.with(|next| {
                        next.complete = next.complete.max(version);
                        next.clock += 1;
                        next.sides[at].serving = Serving::Stamped { version, stamp: next.clock };
                    }));
                } else {
                    visit(stamped(&|stamp| Serving::Stamped { version, stamp }));
                }
            }
            Serving::Stamped { version, stamp } => visit(self.with(|next| {
                let goes_back = mutant == Some(Mutant::SlotsGoBack);
                next.slot.stamp = if goes_back { stamp } else { next.slot.stamp.max(stamp) };
                next.slot.is_hot &= mutant != Some(Mutant::StampsEndTheHeat);
                next.sides[at].serving = Serving::Raised(version);
            })),
            Serving::Raised(version) => visit(self.with(|next| {
                next.complete = next.complete.max(version);
                next.sides[at].serving = Serving::Nothing;
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
                    visit(go(reading), None);
                }
                if let Some(cached) = side.cached {
                    let is_heeded = mutant != Some(Mutant::UseIgnoresTheHeat);
                    let is_hot = self.slot.is_hot && is_heeded;
                    let is_slot_valid = !is_hot && self.slot.stamp <= cached.clock;
                    let is_slot_valid = is_slot_valid || mutant == Some(Mutant::UseIgnoresTheSlot);
                    visit(go(Reading::Checking { at_least: self.complete, is_slot_valid }), None);
                }
            }
            Reading::Epoch(epoch) => visit(go(Reading::Moment { epoch, clock: self.clock }), None),
            Reading::Moment { epoch, clock } => visit(cache(Cached { version, epoch, clock }), None),
            Reading::Late { version, epoch, clock } => {
                let (epoch, clock) = (epoch.unwrap_or(self.epoch), clock.unwrap_or(self.clock));
                visit(cache(Cached { version, epoch, clock }), None);
            }
            Reading::Checking { at_least, is_slot_valid } => {
                let Some(cached) = side.cached else { return };
                let is_epoch_valid = cached.epoch == self.epoch || mutant == Some(Mutant::UseIgnoresTheEpoch);
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
