//! Changes that wait to be announced: bounded, and merged where the guest would see no difference.

use std::{
    collections::{HashMap, VecDeque},
    time::Instant,
};

use transom_wire::NodeId;

use super::{Change, Kind};

/// Number of changes that may wait, about 100 bytes each. A guest replays some thousands a second; a burst that takes
/// it longer than a few seconds is one message.
pub(super) const CHANGES_MAX: usize = 16384;

/// Number of changes that wait when the agent no longer keeps up: the guest's names may then be stale for seconds.
pub(super) const BACKLOG_MAX: usize = 1024;

/// Changes in the order in which they happened.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// With the time at which each was queued; of merged ones, the first.
    changes: VecDeque<(Change, Instant)>,
    /// Number of changes that have left.
    popped: u64,
    /// The last change that touches a name, by its number since the beginning.
    last: HashMap<(NodeId, Box<[u8]>), u64>,
    has_overflowed: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && !self.has_overflowed
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether changes were lost and the agent was not told of it yet.
    pub(super) fn has_overflowed(&self) -> bool {
        self.has_overflowed
    }

    pub(super) fn front(&self) -> Option<&Change> {
        self.changes.front().map(|(change, _)| change)
    }

    pub(super) fn pop(&mut self) -> Option<(Change, Instant)> {
        let (change, queued) = self.changes.pop_front()?;
        let number = self.popped;
        self.popped += 1;
        for (parent, name) in change.names() {
            let key = (parent, name.into());
            if self.last.get(&key) == Some(&number) {
                self.last.remove(&key);
            }
        }
        Some((change, queued))
    }

    /// Appends a change; returns false if it was one too many, after which only that is known.
    pub(super) fn push(&mut self, change: Change, now: Instant) -> bool {
        if self.has_overflowed {
            return true;
        }
        if self.is_merged(&change) {
            return true;
        }
        if self.changes.len() == CHANGES_MAX {
            self.overflow();
            return false;
        }
        let number = self.popped + self.changes.len() as u64;
        for (parent, name) in change.names() {
            self.last.insert((parent, name.into()), number);
        }
        self.changes.push_back((change, now));
        true
    }

    /// Drops all changes and remembers that.
    pub(super) fn overflow(&mut self) {
        self.popped += self.changes.len() as u64;
        self.changes = VecDeque::new();
        self.last = HashMap::new();
        self.has_overflowed = true;
    }

    /// Returns whether changes were lost since the last call.
    pub(super) fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.has_overflowed)
    }

    /// Merges a change of data or attributes with the last change of its name, if that says the same.
    fn is_merged(&mut self, change: &Change) -> bool {
        let kinds = [Kind::Modified, Kind::Written, Kind::Closed, Kind::Attributes, Kind::Stale];
        if !kinds.contains(&change.kind) {
            return false;
        }
        let Some(number) = self.last.get(&(change.parent, change.name.clone())) else { return false };
        let at = usize::try_from(number - self.popped).expect("the queue has less than 2^32 changes");
        let Some((last, _)) = self.changes.get_mut(at) else { return false };
        if last.object() != change.object() {
            return false;
        }
        match (last.kind, change.kind) {
            (Kind::Modified, Kind::Written | Kind::Closed) => last.kind = Kind::Written,
            (last, new) if last == new => {}
            _ => return false,
        }
        true
    }
}
