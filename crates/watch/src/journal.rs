//! Tells our own changes from those of others where the kernel does not say who made them.
//!
//! A process announces each change of a name before the system call and says afterwards how it ended. Messages about a
//! name are then compared with announcements. They are our own only if that is certain, in doubt their author is
//! [`Author::Unknown`]:
//!
//! - A message without an announcement of its name is another process's.
//! - A message is our own if all announced changes of its name had ended successfully before the reading began, the
//!   kernel's queue was read to its end, and there are as many messages as announcements.
//! - Everything else is in doubt, and so is each change of contents and attributes while any of ours is announced: the
//!   kernel merges such messages, so one may stand for changes of both.
//!
//! Memory is bounded: a change that finds no room puts all in doubt until it has been read past.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{Author, Change, ChangeKind, Object};

/// Announcements that are kept: more than requests in flight, times the changes that a busy reader lags behind.
const ENTRIES_MAX: usize = 4096;

/// Announced changes of this process.
#[derive(Debug)]
pub struct Journal {
    hasher: RandomState,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: Vec<Entry>,
    next_id: u64,
    /// Number of readings that have begun.
    readings: u64,
    /// Changes in progress for which there was no room.
    unrecorded: usize,
    /// `readings` at the end of the last change for which there was no room, until that is read past.
    unrecorded_end: Option<u64>,
}

#[derive(Debug)]
struct Entry {
    id: u64,
    what: Key,
    /// `readings` when the change ended.
    end: Option<u64>,
    /// Its message may have been read already, or there may be no message.
    is_doubtful: bool,
}

/// What an announcement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// A hash of a name and its directory, and whether the name appears.
    Name(u64, bool),
    Contents,
}

/// A change that this process is about to make. Directories are numbered as in [`Object::Held`].
#[derive(Debug, Clone, Copy)]
pub enum Announcement<'a> {
    /// A name appears: it is created, linked, or the new name of a rename.
    Appears(u64, &'a [u8]),
    /// A name disappears: it is removed, or the old name of a rename.
    Disappears(u64, &'a [u8]),
    /// Contents or attributes of any object change, or a file is closed that was open for writing.
    Contents,
}

/// How an announced change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It was made, and the kernel sends exactly one message about it.
    Done,
    /// Nothing was changed.
    Failed,
    /// There may or may not be a message: the directory is not watched, or two names of one file were renamed over
    /// each other.
    Unsure,
}

/// A change in progress. Dropping it without [`InProgress::end`] is [`ChangeOutcome::Unsure`].
#[derive(Debug)]
#[must_use]
pub struct InProgress<'a> {
    journal: &'a Journal,
    /// `None` if there was no room.
    id: Option<u64>,
    outcome: ChangeOutcome,
}

/// The beginning of a reading of the kernel's queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading(u64);

impl Default for Journal {
    fn default() -> Self {
        Self { hasher: RandomState::new(), inner: Mutex::default() }
    }
}

impl Journal {
    /// Announces a change. Must be called before the system call that makes it.
    pub fn announce(&self, change: Announcement<'_>) -> InProgress<'_> {
        let what = match change {
            Announcement::Appears(parent, name) => self.key(parent, name, true),
            Announcement::Disappears(parent, name) => self.key(parent, name, false),
            Announcement::Contents => Key::Contents,
        };
        let mut inner = self.lock();
        let id = if inner.entries.len() < ENTRIES_MAX {
            inner.next_id += 1;
            let id = inner.next_id;
            inner.entries.push(Entry { id, what, end: None, is_doubtful: false });
            Some(id)
        } else {
            inner.unrecorded += 1;
            None
        };
        InProgress { journal: self, id, outcome: ChangeOutcome::Unsure }
    }

    /// Puts all that is announced in doubt. Must be called when another directory begins to be watched, whose announced
    /// changes may have no message.
    pub(crate) fn doubt_all(&self) {
        self.lock().entries.iter_mut().for_each(|entry| entry.is_doubtful = true);
    }

    /// Must be called before the kernel's queue is read.
    pub(crate) fn begin(&self) -> Reading {
        let mut inner = self.lock();
        inner.readings += 1;
        Reading(inner.readings)
    }

    /// Sets the authors of `changes`, which were read since `reading` began. `is_drained` if the queue was then empty.
    pub(crate) fn attribute(&self, reading: Reading, is_drained: bool, changes: &mut [Change<'_>]) {
        let mut messages: HashMap<Key, usize> = HashMap::new();
        for change in &*changes {
            self.keys(change).into_iter().flatten().for_each(|key| *messages.entry(key).or_default() += 1);
        }
        let mut inner = self.lock();
        let is_blind = inner.unrecorded > 0 || inner.unrecorded_end.is_some();
        let mut authors: HashMap<Key, Author> = HashMap::new();
        for (&key, &count) in &messages {
            let mut ours = inner.entries.iter_mut().filter(|entry| entry.what == key).peekable();
            let author = if is_blind {
                Author::Unknown
            } else if ours.peek().is_none() {
                Author::Other(None)
            } else {
                let (mut announced, mut is_certain) = (0, is_drained && key != Key::Contents);
                for entry in ours {
                    announced += 1;
                    is_certain &= entry.has_ended_before(reading) && !entry.is_doubtful;
                    // If this message is not its own, a later one may be.
                    entry.is_doubtful = true;
                }
                if is_certain && announced == count { Author::Own } else { Author::Unknown }
            };
            authors.insert(key, author);
        }
        if is_drained {
            inner.entries.retain(|entry| !entry.has_ended_before(reading));
            inner.unrecorded_end.take_if(|end| *end < reading.0);
        }
        drop(inner);
        for change in changes {
            let mut of_names = self.keys(change).into_iter().flatten().map(|key| authors.get(&key).copied());
            let first = of_names.next().flatten().unwrap_or(Author::Unknown);
            change.author = if of_names.all(|other| other == Some(first)) { first } else { Author::Unknown };
        }
    }

    /// Returns what a message is compared by: one key, or two if a name has moved.
    fn keys(&self, change: &Change<'_>) -> [Option<Key>; 2] {
        let name = |place: Option<crate::EntryName<'_>>, appears| match place {
            Some(crate::EntryName { parent: Object::Held(parent), name }) => Some(self.key(parent, name, appears)),
            _ => None,
        };
        match change.kind {
            ChangeKind::Created | ChangeKind::MovedIn => [name(change.place, true), None],
            ChangeKind::Deleted | ChangeKind::MovedOut => [name(change.place, false), None],
            ChangeKind::Renamed { to } => [name(change.place, false), name(Some(to), true)],
            ChangeKind::Modified | ChangeKind::Attributes | ChangeKind::ClosedWritten => [Some(Key::Contents), None],
        }
    }

    fn key(&self, parent: u64, name: &[u8], appears: bool) -> Key {
        Key::Name(self.hasher.hash_one((parent, name)), appears)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn has_ended_before(&self, reading: Reading) -> bool {
        self.end.is_some_and(|end| end < reading.0)
    }
}

impl InProgress<'_> {
    /// Says how the change ended. Must be called after the system call.
    pub fn end(mut self, outcome: ChangeOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for InProgress<'_> {
    fn drop(&mut self) {
        let mut inner = self.journal.lock();
        let readings = inner.readings;
        let Some(id) = self.id else {
            inner.unrecorded -= 1;
            inner.unrecorded_end = Some(readings);
            return;
        };
        // Ids rise, and entries keep their order.
        let Ok(at) = inner.entries.binary_search_by_key(&id, |entry| entry.id) else { return };
        if self.outcome == ChangeOutcome::Failed {
            inner.entries.remove(at);
            return;
        }
        let entry = &mut inner.entries[at];
        entry.end = Some(readings);
        entry.is_doubtful |= self.outcome == ChangeOutcome::Unsure;
    }
}

#[cfg(test)]
#[path = "journal_test.rs"]
mod journal_test;
