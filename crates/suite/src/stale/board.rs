//! What the members have in common: which round of each is complete, and when all is over.

use super::sum::Sum;
use std::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    time::Instant,
};

/// Guests of the library, each with a daemon of its own.
pub(super) const GUESTS: usize = 4;

/// The number of the mount among the members.
pub(super) const MOUNT: usize = GUESTS;

/// Those who change something.
pub(super) const MEMBERS: usize = GUESTS + 1;

/// The state of a run.
pub(super) struct Board {
    /// The last round of each member that is complete.
    done: [AtomicU64; MEMBERS],
    /// The process of each guest's daemon, 0 while it has no daemon.
    pub(super) daemons: [AtomicU32; GUESTS],
    changes: AtomicU64,
    checks: AtomicU64,
    stale: AtomicU64,
    pub(super) deaths: AtomicU64,
    /// How often a member looks at everything after each of its changes.
    pub(super) looks: u64,
    rounds: u64,
    deadline: Option<Instant>,
    is_over: AtomicBool,
}

impl Board {
    /// A run of `rounds`, or one that ends at `deadline`.
    pub(super) fn new(rounds: u64, looks: u64, deadline: Option<Instant>) -> Self {
        Self {
            done: Default::default(),
            daemons: Default::default(),
            changes: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            stale: AtomicU64::new(0),
            deaths: AtomicU64::new(0),
            looks,
            rounds,
            deadline,
            is_over: AtomicBool::new(false),
        }
    }

    /// Tells that all changes of `round` are complete.
    pub(super) fn publish(&self, member: usize, round: u64) {
        self.done[member].store(round, Ordering::SeqCst);
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the round that whoever looks from now on must see, or a later one.
    pub(super) fn least(&self, member: usize) -> u64 {
        self.done[member].load(Ordering::SeqCst)
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Counts what a member has found since it last did.
    pub(super) fn count(&self, checks: u64, stale: u64) {
        self.checks.fetch_add(checks, Ordering::Relaxed);
        self.stale.fetch_add(stale, Ordering::Relaxed);
    }

    /// Returns what this run has come to so far.
    pub(super) fn sum(&self) -> Sum {
        Sum {
            runs: 1,
            checks: self.checks.load(Ordering::Relaxed),
            changes: self.changes(),
            deaths: self.deaths.load(Ordering::Relaxed),
            stale: self.stale.load(Ordering::Relaxed),
        }
    }

    /// Whether a member that has done `rounds` has another one to do.
    pub(super) fn goes_on(&self, rounds: u64) -> bool {
        !self.is_over()
            && match self.deadline {
                Some(deadline) => Instant::now() < deadline,
                None => rounds < self.rounds,
            }
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}
