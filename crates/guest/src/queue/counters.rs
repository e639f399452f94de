//! Counters of a queue.

use core::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of a queue's counters, which only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Messages that were sent.
    pub sent: u64,
    /// Notifications that the device wanted.
    pub notifications: u64,
    /// Times that a thread slept in the transport.
    pub sleeps: u64,
    /// Times that a caller found the queue full.
    pub full: u64,
    /// The usual duration of recent calls in nanoseconds, up to a limit beyond which polling does not pay.
    pub usual_ns: u32,
}

#[derive(Default)]
pub(super) struct Counters {
    sent: AtomicU64,
    notifications: AtomicU64,
    sleeps: AtomicU64,
    full: AtomicU64,
}

impl Counters {
    pub(super) fn sent(&self, is_notified: bool) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        if is_notified {
            self.notifications.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn slept(&self) {
        self.sleeps.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn was_full(&self) {
        self.full.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self, usual_ns: u32) -> QueueCounts {
        QueueCounts {
            sent: self.sent.load(Ordering::Relaxed),
            notifications: self.notifications.load(Ordering::Relaxed),
            sleeps: self.sleeps.load(Ordering::Relaxed),
            full: self.full.load(Ordering::Relaxed),
            usual_ns,
        }
    }
}
