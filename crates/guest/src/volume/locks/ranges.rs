//! Which owner locks which bytes of a file, by the rules of fcntl(2): pure bookkeeping, without waiting.
//!
//! One owner's locks never overlap, and adjacent locks of one kind are merged.

use alloc::vec::Vec;

/// The owner of a lock, within a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A process, by a number that the caller chooses.
    Process(u64),
    /// An open file, by [`OpenFile::owner`](super::OpenFile::owner).
    OpenFile(u64),
}

/// A lock that is held or requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) is_exclusive: bool,
    /// The first byte.
    pub(super) start: u64,
    /// The last byte, below `u64::MAX`.
    pub(super) last: u64,
    /// The pid to report as the holder's.
    pub(super) pid: u32,
}

/// The locks on one file.
#[derive(Debug, Default)]
pub(super) struct RangeLocks(Vec<Held>);

impl RangeLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the lock that conflicts with `wanted`, the one with the lowest start if there are several.
    pub(super) fn conflict(&self, wanted: &Held) -> Option<Held> {
        self.0.iter().filter(|held| held.keeps_out(wanted)).min_by_key(|held| held.start).copied()
    }

    /// Sets `new` for its owner, and replaces its other locks there. The caller has checked that there is no conflict.
    pub(super) fn set(&mut self, new: Held) {
        self.clear(new.owner, new.start, new.last);
        let mut joined = new;
        self.0.retain(|held| {
            let is_like = held.owner == new.owner && held.is_exclusive == new.is_exclusive;
            let touches = held.last + 1 == new.start || new.last + 1 == held.start;
            if is_like && touches {
                (joined.start, joined.last) = (joined.start.min(held.start), joined.last.max(held.last));
            }
            !(is_like && touches)
        });
        self.0.push(joined);
    }

    /// Releases the locks of `owner` on the bytes from `start` to `last`.
    pub(super) fn clear(&mut self, owner: Owner, start: u64, last: u64) {
        let mut split_off = None;
        self.0.retain_mut(|held| {
            if held.owner != owner || held.last < start || held.start > last {
                return true;
            }
            let before = (held.start < start).then(|| Held { last: start - 1, ..*held });
            let behind = (held.last > last).then(|| Held { start: last + 1, ..*held });
            match before.or(behind) {
                Some(rest) => {
                    // Only a lock that extends beyond both ends leaves two parts, and then there is no other.
                    split_off = before.and(behind).or(split_off);
                    *held = rest;
                    true
                }
                None => false,
            }
        });
        self.0.extend(split_off);
    }

    /// Returns whether the lock of `owner` on the byte `at` is exclusive, or `None` if it has no lock there.
    pub(super) fn kind_at(&self, owner: Owner, at: u64) -> Option<bool> {
        let covers = |held: &&Held| held.owner == owner && held.start <= at && at <= held.last;
        self.0.iter().find(covers).map(|held| held.is_exclusive)
    }
}

impl Held {
    fn keeps_out(&self, wanted: &Self) -> bool {
        let overlaps = self.start <= wanted.last && wanted.start <= self.last;
        self.owner != wanted.owner && overlaps && (self.is_exclusive || wanted.is_exclusive)
    }
}
