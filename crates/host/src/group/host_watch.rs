//! Which member stamps what other processes of the host change.
//!
//! Members that can see such changes offer to stamp them. The one that holds the lock of a byte does; when it leaves or
//! dies, another one gets the lock. The table's flag says that there is one. Guests rely on the flag, so the epoch is
//! raised whenever changes may have gone without a stamp: when the flag is set, since nobody has looked before; when it
//! is cleared, since nobody has looked since the last one ended; and when a member takes over that has not kept what it
//! was sent until then. Of one that dies, whoever frees its record raises the epoch.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::Duration,
};

use super::{Inner, MEMBERS_MAX, area::RecordWord, members::byte};
use crate::{
    Errno,
    sysfd::ofd::{LockKind, try_lock, unlock},
};

/// This member's part.
#[derive(Debug, Default)]
pub(super) struct HostWatch {
    /// Whether this member holds the lock of the byte. Changed under `turn`.
    is_held: AtomicBool,
    /// Whether this member's source keeps what it is sent until `is_held`.
    keeps_changes: AtomicBool,
    stamps: HostStamps,
    /// Held while the member begins or ends: two of its threads would both get the lock of the byte.
    turn: Mutex<()>,
}

/// How many of the host's own changes this member has stamped, and how late.
#[derive(Debug, Default)]
pub struct HostStamps {
    changes: AtomicU64,
    timed: AtomicU64,
    delay_ns: AtomicU64,
}

impl HostStamps {
    pub(super) fn count(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// Notes how late one of the changes was stamped.
    pub fn note_delay(&self, delay: Duration) {
        self.timed.fetch_add(1, Relaxed);
        self.delay_ns.fetch_add(delay.as_nanos().try_into().unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the number of changes that were stamped.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Returns the number of changes whose delay is known.
    pub fn timed(&self) -> u64 {
        self.timed.load(Relaxed)
    }

    /// Returns the sum of these delays.
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns.load(Relaxed)
    }
}

impl HostWatch {
    pub(super) fn stamps(&self) -> &HostStamps {
        &self.stamps
    }

    /// Offers to stamp, and begins if nobody else does.
    pub(super) fn offer(&self, inner: &Inner, keeps_changes: bool) {
        self.keeps_changes.store(keeps_changes, SeqCst);
        own_word(inner, 1);
        self.settle(inner);
    }

    /// Stops to stamp. The flag is left to whoever settles next.
    pub(super) fn withdraw(&self, inner: &Inner) {
        let _turn = self.turn();
        own_word(inner, 0);
        if self.is_held.swap(false, SeqCst) {
            let _ = unlock(&inner.file, byte(inner.area.host_watch_byte()));
        }
    }

    /// Returns whether this member stamps.
    pub(super) fn is_held(&self) -> bool {
        self.is_held.load(SeqCst)
    }

    /// Begins if this member has offered to and nobody does, or clears the flag if nobody has offered to.
    pub(super) fn settle(&self, inner: &Inner) {
        let Inner { file, table, area, .. } = inner;
        if self.is_held() || (!can_watch(inner, inner.record.index) && !table.reader().stamps_host_changes()) {
            return;
        }
        let _turn = self.turn();
        let range = byte(area.host_watch_byte());
        match try_lock(file, range, LockKind::Exclusive) {
            Ok(()) => {}
            // Somebody stamps.
            Err(Errno::AGAIN) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot find out whether changes on the host are stamped");
                return;
            }
        }
        if can_watch(inner, inner.record.index) {
            // First: a change that is read between the new epoch and this would be dropped. A stamp too many is
            // harmless.
            self.is_held.store(true, SeqCst);
            if !table.reader().stamps_host_changes() || !self.keeps_changes.load(SeqCst) {
                table.set_host_changes(true);
                table.raise_epoch();
            }
            return;
        }
        if table.reader().stamps_host_changes() && !(0..MEMBERS_MAX).any(|index| can_watch(inner, index)) {
            table.set_host_changes(false);
            table.raise_epoch();
            tracing::warn!("nobody in the coherence group stamps changes on the host any more");
        }
        let _ = unlock(file, range);
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn can_watch(inner: &Inner, index: usize) -> bool {
    inner.area.is_live(index) && inner.area.record(index, RecordWord::HostWatch).load(SeqCst) != 0
}

fn own_word(inner: &Inner, value: u64) {
    inner.area.record(inner.record.index, RecordWord::HostWatch).store(value, SeqCst);
}
