//! What a run has found.

use std::{fmt, time::Duration};

use super::{
    board::Board,
    record::{KINDS, Look},
};

/// So many stale answers are told; the others are counted by nobody.
const TOLD_MAX: usize = 10;

/// How long a mount was behind, and in which of [`KINDS`] at the end.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Delay {
    pub(super) time: Duration,
    pub(super) kind: usize,
}

/// Counts of one member, or of all.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Answers that were compared with a published round.
    pub(super) checks: u64,
    /// Answers from before a completed change.
    pub(super) stale: Vec<String>,
    /// What the board knows already: so many checks, and so many stale answers.
    reported: (u64, u64),
    /// For each change that was followed by the mount: how long its answers were old, 0 if it was right at once.
    pub(super) delays: Vec<Delay>,
    pub(super) changes: u64,
    pub(super) deaths: u64,
}

impl Tally {
    /// Counts a look of `who` at the record of `member`, whose round `least` was complete.
    pub(super) fn note(&mut self, who: &str, member: usize, least: u64, look: &Look) {
        self.checks += look.len() as u64;
        for (kind, found) in KINDS.iter().zip(look).filter(|(_, found)| **found < least) {
            if self.stale.len() < TOLD_MAX {
                self.stale.push(format!(
                    "STALE: {who} saw round {found} in the {kind} of member {member} after {least} was complete"
                ));
            }
        }
    }

    /// Counts on the board what has been found since the last time.
    pub(super) fn report(&mut self, board: &Board) {
        let found = (self.checks, self.stale.len() as u64);
        board.count(found.0 - self.reported.0, found.1 - self.reported.1);
        self.reported = found;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.checks += other.checks;
        self.stale.extend(other.stale);
        self.delays.extend(other.delays);
        self.changes += other.changes;
        self.deaths += other.deaths;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { checks, stale, changes, deaths, .. } = self;
        let many = if stale.len() < TOLD_MAX { "" } else { " or more" };
        write!(f, "{checks} checks after {changes} changes, {deaths} daemons killed, {}{many} stale", stale.len())?;
        let mut delays = self.delays.clone();
        delays.sort_unstable();
        let Some(longest) = delays.last() else { return Ok(()) };
        let part = |percent: usize| delays[(delays.len() - 1) * percent / 100].time;
        let at_once = delays.iter().filter(|delay| delay.time.is_zero()).count();
        let late = |kind| delays.iter().filter(|delay| !delay.time.is_zero() && delay.kind == kind).count();
        let late: Vec<_> = (0..KINDS.len()).map(|kind| format!("{} {}", KINDS[kind], late(kind))).collect();
        write!(
            f,
            "; the mount followed {} changes, {at_once} at once, p50 {:.1?}, p90 {:.1?}, p99 {:.1?}, longest {:.1?}; \
             late: {}",
            delays.len(),
            part(50),
            part(90),
            part(99),
            longest.time,
            late.join(", ")
        )
    }
}
