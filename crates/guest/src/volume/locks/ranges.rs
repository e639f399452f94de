//! Which bytes of a file are locked by whom, by the rules of fcntl(2): pure bookkeeping, without waiting.
//!
//! One owner's locks never overlap, and those of one kind never touch: they are one lock.

use alloc::vec::Vec;

/// Whose a lock is, within a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// A process, by the caller's number.
    Process(u64),
    /// An open file, by [`OpenFile::owner`](super::OpenFile::owner).
    OpenFile(u64),
}

/// A lock that somebody holds or wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) owner: Owner,
    pub(super) is_exclusive: bool,
    /// The first byte.
    pub(super) start: u64,
    /// The last byte, below `u64::MAX`.
    pub(super) last: u64,
    /// Who is told to hold it.
    pub(super) pid: u32,
}

/// The locks on one file.
#[derive(Debug, Default)]
pub(super) struct RangeLocks(Vec<Held>);

impl RangeLocks {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lock that keeps `wanted` out, the first by its place where there are several.
    pub(super) fn conflict(&self, wanted: &Held) -> Option<Held> {
        self.0.iter().filter(|held| held.keeps_out(wanted)).min_by_key(|held| held.start).copied()
    }

    /// Gives `new` to its owner, in place of what he holds there. The caller has seen that there is no conflict.
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

    /// Ends what `owner` holds of the bytes from `start` to `last`.
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
                    // Only a lock that reaches beyond both ends leaves two parts, and then there is no other.
                    split_off = before.and(behind).or(split_off);
                    *held = rest;
                    true
                }
                None => false,
            }
        });
        self.0.extend(split_off);
    }

    /// Of what kind the lock of `owner` is that covers the byte `at`: exclusive or not.
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
