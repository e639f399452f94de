//! The bytes of one file that one owner has locked, by the rules of fcntl(2). Pure bookkeeping.
//!
//! Locks never overlap, and two adjacent locks of one kind are merged, as in the host's kernel.

use std::collections::BTreeMap;

use crate::sysfd::ofd::{FileRange, LockKind};

/// The locks of one owner on one inode: first byte, last byte and kind of each.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, (u64, LockKind)>);

impl Ranges {
    /// Returns the number of locks.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FileRange, LockKind)> {
        self.0.iter().map(|(&start, &(end, kind))| (range(start, end), kind))
    }

    /// Locks `bytes`, replacing existing locks there.
    pub(crate) fn set(&mut self, bytes: FileRange, kind: LockKind) {
        self.clear(bytes);
        let (mut start, mut end) = (bytes.start(), bytes.end());
        if let Some((&before, &(last, like))) = self.0.range(..start).next_back()
            && (last + 1, like) == (start, kind)
        {
            self.0.remove(&before);
            start = before;
        }
        if let Some(&(last, like)) = self.0.get(&(end + 1))
            && like == kind
        {
            self.0.remove(&(end + 1));
            end = last;
        }
        self.0.insert(start, (end, kind));
    }

    /// Unlocks `bytes`.
    pub(crate) fn clear(&mut self, bytes: FileRange) {
        let (start, end) = (bytes.start(), bytes.end());
        if let Some((&before, &(last, kind))) = self.0.range(..start).next_back()
            && last >= start
        {
            self.0.insert(before, (start - 1, kind));
            if last > end {
                self.0.insert(end + 1, (last, kind));
            }
        }
        while let Some((&inside, &(last, kind))) = self.0.range(start..=end).next() {
            self.0.remove(&inside);
            if last > end {
                self.0.insert(end + 1, (last, kind));
            }
        }
    }

    /// Returns whether [`Ranges::clear`] would increase the number of locks.
    pub(super) fn splits(&self, bytes: FileRange) -> bool {
        let before = self.0.range(..bytes.start()).next_back();
        before.is_some_and(|(_, &(last, _))| last > bytes.end())
    }

    /// Returns the lock that covers the byte `at`.
    pub(super) fn at(&self, at: u64) -> Option<(FileRange, LockKind)> {
        let (&start, &(end, kind)) = self.0.range(..=at).next_back()?;
        (end >= at).then(|| (range(start, end), kind))
    }

    /// Returns whether these locks keep another owner from taking a lock of `kind` on `bytes`.
    pub(super) fn keep_out(&self, bytes: FileRange, kind: LockKind) -> bool {
        let is_in_the_way = |held| held == LockKind::Exclusive || kind == LockKind::Exclusive;
        self.at(bytes.start()).is_some_and(|(_, held)| is_in_the_way(held))
            || self.0.range(bytes.start()..=bytes.end()).any(|(_, &(_, held))| is_in_the_way(held))
    }
}

fn range(start: u64, end: u64) -> FileRange {
    FileRange::new(start, end).expect("both come from a range, or lie next to one's bounds within it")
}

#[cfg(test)]
#[path = "ranges_test.rs"]
mod ranges_test;
