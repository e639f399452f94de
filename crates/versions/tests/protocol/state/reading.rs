//! What the guest that reads does: it fetches the file, and uses what it has fetched.

use super::{Mutant, State, Used, serving::Serving};

/// What a guest's reader is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reading {
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
pub(super) struct Cached {
    pub(super) version: u8,
    pub(super) epoch: u8,
    pub(super) clock: u8,
}

impl State {
    /// Fetches, or uses what was fetched.
    pub(super) fn read(&self, at: usize, mutant: Option<Mutant>, visit: &mut impl FnMut(Self, Option<Used>)) {
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

    /// Goes on with a fetch. What is in flight meanwhile knows it.
    fn begin_fetch(&mut self, at: usize, reading: Reading) {
        self.sides[at].reading = reading;
        self.note_fetch();
    }
}
