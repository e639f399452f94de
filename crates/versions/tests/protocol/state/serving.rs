//! What a daemon does for its guest: changes by request, and the heat of files that are open for writing.

use super::{Mutant, State, Word, own::Raise};

/// What a daemon is doing for its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Serving {
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

impl State {
    /// Begins a request, or stores through a mapping.
    pub(super) fn begin(&self, at: usize, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
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
                if at == 1 {
                    next.send_own();
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
    pub(super) fn serve(&self, at: usize, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
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
                    visit(self.stamped(at, |stamp| Serving::Stamped { version, stamp, seen }));
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
                if at == 1 {
                    next.reply_own(version, raise);
                }
            })),
            serving => self.serve_heat(at, serving, mutant, visit),
        }
    }

    /// Goes on with an open or a close of a mapped file.
    fn serve_heat(&self, at: usize, serving: Serving, mutant: Option<Mutant>, visit: &mut impl FnMut(Self)) {
        let go = |serving| self.with(|next| next.sides[at].serving = serving);
        match serving {
            Serving::Nothing
            | Serving::Dead
            | Serving::Changed(_)
            | Serving::Stamped { .. }
            | Serving::Raised(..)
            | Serving::Early(_) => {}
            Serving::Announced => visit(self.stamped(at, Serving::Heating)),
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
                _ => self.stamped(at, |stamp| Serving::Cooling { seen, stamp }),
            }),
            Serving::Cooling { seen, .. } if seen != self.slot => visit(go(Serving::Withdrawn)),
            Serving::Cooling { seen, stamp } => visit(self.with(|next| {
                next.slot = Word { is_hot: false, stamp: seen.stamp.max(stamp) };
                next.sides[at].serving = Serving::Nothing;
            })),
        }
    }

    /// Returns the state with a new stamp, and the daemon at the step that `serving` makes of it.
    fn stamped(&self, at: usize, serving: impl FnOnce(u8) -> Serving) -> Self {
        self.with(|next| {
            next.clock += 1;
            next.sides[at].serving = serving(next.clock);
        })
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
}
