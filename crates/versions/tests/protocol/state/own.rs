//! What the guest that reads does with its own changes, once their replies have come.

use super::{Mutant, Reading, State};

/// The stamps of a slot before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Raise {
    pub(super) previous: u8,
    pub(super) new: u8,
    /// The slot is hot: the reply says nothing.
    pub(super) is_hot: bool,
}

/// A change that the guest that reads has sent itself, and not yet taken note of. Two may be in flight, and their
/// replies are dealt with in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Flight {
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

impl State {
    /// Sends a change of guest 1.
    pub(super) fn send_own(&mut self) {
        if let Some(free) = self.flights.iter_mut().find(|flight| flight.is_none()) {
            *free = Some(Flight::Sent { is_fetching: false });
        }
    }

    /// Replies to a change of guest 1. A daemon answers in its order, so to the one that was sent first.
    pub(super) fn reply_own(&mut self, version: u8, raise: Raise) {
        for flight in self.flights.iter_mut().flatten() {
            if let Flight::Sent { is_fetching } = *flight {
                *flight = Flight::Replied { is_fetching, version, raise };
                return;
            }
        }
    }

    /// Tells the changes in flight that something is requested.
    pub(super) fn note_fetch(&mut self) {
        for flight in self.flights.iter_mut().flatten() {
            if let Flight::Sent { is_fetching } | Flight::Replied { is_fetching, .. } = flight {
                *is_fetching = true;
            }
        }
    }

    /// Takes note of a change that guest 1 has made itself, once its reply has come.
    pub(super) fn note_own(&self, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
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
    pub(super) fn is_own(&self, clock: u8, mutant: Option<Mutant>) -> bool {
        self.own.is_some_and(|(begin, end)| {
            let is_cold = !self.slot.is_hot || mutant == Some(Mutant::OwnChangesCoverAHotSlot);
            let is_at_end = self.slot.stamp == end || mutant == Some(Mutant::OwnChangesCoverTheSlotAtAnyStamp);
            let is_since = begin <= clock || mutant == Some(Mutant::OwnChangesCoverAnOlderFetch);
            is_cold && is_at_end && is_since
        })
    }
}
