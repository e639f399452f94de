//! Counters of a session, for monitoring.

use core::sync::atomic::{AtomicU64, Ordering};

/// Totals since the session began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages sent, including INIT and forgets but not INTERRUPT.
    pub requests: u64,
    /// Replies with impossible lengths or fields; each was answered with EIO.
    pub impossible_replies: u64,
    /// References dropped, as FORGET counts them.
    pub forgotten_lookups: u64,
    /// FORGET and BATCH_FORGET messages sent.
    pub forget_messages: u64,
    /// Attempts to send these that failed; their references are sent later.
    pub forget_failures: u64,
}

#[derive(Default)]
pub(super) struct Tally {
    pub(super) impossible_replies: AtomicU64,
    pub(super) forgotten_lookups: AtomicU64,
    pub(super) forget_messages: AtomicU64,
    pub(super) forget_failures: AtomicU64,
}

impl Tally {
    pub(super) fn read(&self, requests: u64) -> Counters {
        Counters {
            requests,
            impossible_replies: self.impossible_replies.load(Ordering::Relaxed),
            forgotten_lookups: self.forgotten_lookups.load(Ordering::Relaxed),
            forget_messages: self.forget_messages.load(Ordering::Relaxed),
            forget_failures: self.forget_failures.load(Ordering::Relaxed),
        }
    }
}

/// Adds to a total with relaxed ordering.
pub(super) fn add(sum: &AtomicU64, amount: u64) {
    sum.fetch_add(amount, Ordering::Relaxed);
}
