//! Locks that this guest keeps itself if the server keeps none: as in Linux, they apply among the users of this volume.
//!
//! One table holds the locks of all files, under one lock that is held only while the table is examined. Waiters use
//! the session's event, which is signalled when a lock is released or an [`Interrupt`](crate::session::Interrupt) is
//! raised. A waiting process is recorded with the process that it waits for, to detect deadlocks (EDEADLK).

use alloc::{vec, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hashbrown::HashMap;

use super::{
    TO_THE_END,
    ranges::{Held, Owner, RangeLocks},
};
use crate::{
    Errno, Platform,
    platform::Event as _,
    session::{Caller, Session},
    sync::{Mutex, rank},
};

/// Locks of different families do not conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// Locks on ranges of bytes.
    Ranges,
    /// Locks of flock(2).
    Whole,
}

/// A file and a family; the file by the address of its inode, which is unique for as long as it has locks.
type Key = (usize, Family);

/// The locks of a volume.
pub(crate) struct LocalLocks<P: Platform> {
    /// By family: whether this guest keeps the locks because the server does not.
    are_here: [AtomicBool; 2],
    tables: Mutex<P, { rank::LEAF }, Tables>,
    /// Number of files with locks; a hint that often avoids taking the lock.
    files: AtomicUsize,
}

#[derive(Default)]
struct Tables {
    locks: HashMap<Key, RangeLocks>,
    waits: Vec<Wait>,
    tickets: u64,
}

/// A process that waits for another one.
struct Wait {
    ticket: u64,
    waiter: Owner,
    holder: Owner,
}

impl<P: Platform> LocalLocks<P> {
    /// Creates an empty table, given the families that are kept here.
    pub(crate) fn new(has_ranges_here: bool, has_whole_here: bool) -> Self {
        Self {
            are_here: [has_ranges_here.into(), has_whole_here.into()],
            tables: Mutex::default(),
            files: AtomicUsize::new(0),
        }
    }

    pub(super) fn are_here(&self, family: Family) -> bool {
        self.are_here[family as usize].load(Ordering::Relaxed)
    }

    /// Keeps the locks of `family` here from now on.
    pub(super) fn keep_here(&self, family: Family) {
        self.are_here[family as usize].store(true, Ordering::Relaxed);
    }

    pub(super) fn conflict(&self, key: Key, wanted: &Held) -> Option<Held> {
        self.tables.lock().locks.get(&key)?.conflict(wanted)
    }

    /// Sets the lock for its owner. With `is_waiting`, waits for conflicting locks.
    ///
    /// Errors: EAGAIN, EINTR, EDEADLK.
    pub(super) fn set(
        &self,
        session: &Session<P>,
        caller: &Caller<'_>,
        key: Key,
        wanted: Held,
        is_waiting: bool,
    ) -> Result<(), Errno> {
        if key.1 == Family::Whole {
            self.begin_conversion(session, key, &wanted);
        }
        let result = match self.change(|tables| tables.try_set(key, wanted)) {
            Ok(()) => Ok(()),
            Err(_) if !is_waiting => Err(Errno::AGAIN),
            Err(_) => self.wait(session, caller, key, wanted),
        };
        // An exclusive lock may have become a shared one.
        session.waiting().wake_all();
        result
    }

    /// Releases the locks of `owner` on the bytes from `start` to `last`.
    pub(super) fn clear(&self, session: &Session<P>, key: Key, owner: Owner, start: u64, last: u64) {
        if self.files.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.change(|tables| tables.clear(key, owner, start, last));
        session.waiting().wake_all();
    }

    /// Releases every lock on a file that nobody has open any more.
    pub(crate) fn forget_file(&self, file: usize) {
        if self.files.load(Ordering::Relaxed) > 0 {
            self.change(|tables| {
                tables.locks.remove(&(file, Family::Ranges));
                tables.locks.remove(&(file, Family::Whole));
            });
        }
    }

    /// As in flock(2), a lock that is converted is released first: two owners that share a lock and both want an
    /// exclusive one would otherwise wait for each other.
    fn begin_conversion(&self, session: &Session<P>, key: Key, wanted: &Held) {
        let is_other = |tables: &mut Tables| {
            let locks = tables.locks.get(&key);
            locks.and_then(|locks| locks.kind_at(wanted.owner, 0)).is_some_and(|kind| kind != wanted.is_exclusive)
        };
        if self.change(is_other) {
            self.clear(session, key, wanted.owner, 0, TO_THE_END);
        }
    }

    fn wait(&self, session: &Session<P>, caller: &Caller<'_>, key: Key, wanted: Held) -> Result<(), Errno> {
        if session.platform().is_single_threaded() {
            // The lock's holder is the thread that waits.
            return Err(Errno::DEADLK);
        }
        let _interruptible = caller.interrupt.map(|interrupt| interrupt.enter_wait()).transpose()?;
        let ticket = self.change(Tables::ticket);
        let mut outcome = Ok(());
        session.waiting().wait(
            &mut || {
                if caller.interrupt.is_some_and(|interrupt| interrupt.is_raised()) {
                    outcome = Err(Errno::INTR);
                    return true;
                }
                let tried = self.change(|tables| tables.try_or_wait(ticket, key, wanted));
                outcome = tried.map(drop);
                tried != Ok(false)
            },
            None,
        );
        self.change(|tables| tables.waits.retain(|wait| wait.ticket != ticket));
        outcome
    }

    fn change<T>(&self, act: impl FnOnce(&mut Tables) -> T) -> T {
        let mut tables = self.tables.lock();
        let result = act(&mut tables);
        self.files.store(tables.locks.len(), Ordering::Relaxed);
        result
    }
}

impl Tables {
    /// Errors: the owner of a conflicting lock.
    fn try_set(&mut self, key: Key, wanted: Held) -> Result<(), Owner> {
        if let Some(held) = self.locks.get(&key).and_then(|locks| locks.conflict(&wanted)) {
            return Err(held.owner);
        }
        self.locks.entry(key).or_default().set(wanted);
        self.look_again(wanted.owner);
        Ok(())
    }

    /// Tries to set the lock and returns whether that succeeded. If not, records the wait for the conflicting owner.
    ///
    /// Errors: EDEADLK if that owner waits for this one.
    fn try_or_wait(&mut self, ticket: u64, key: Key, wanted: Held) -> Result<bool, Errno> {
        self.waits.retain(|wait| wait.ticket != ticket);
        let Err(holder) = self.try_set(key, wanted) else { return Ok(true) };
        // As in Linux, an open file waits on nobody's behalf: anyone who has it may release its locks.
        if let (Owner::Process(_), Owner::Process(_)) = (wanted.owner, holder) {
            if self.waits_for(holder, wanted.owner) {
                return Err(Errno::DEADLK);
            }
            self.waits.push(Wait { ticket, waiter: wanted.owner, holder });
        }
        Ok(false)
    }

    fn clear(&mut self, key: Key, owner: Owner, start: u64, last: u64) {
        let Some(locks) = self.locks.get_mut(&key) else { return };
        locks.clear(owner, start, last);
        if locks.is_empty() {
            self.locks.remove(&key);
        }
        self.look_again(owner);
    }

    /// Those that wait for `holder` are about to be woken, and will record anew for whom they wait.
    fn look_again(&mut self, holder: Owner) {
        self.waits.retain(|wait| wait.holder != holder);
    }

    /// Returns whether `from` waits for `to`, directly or indirectly.
    fn waits_for(&self, from: Owner, to: Owner) -> bool {
        let (mut reached, mut at) = (vec![from], 0);
        while let Some(&waiter) = reached.get(at) {
            if waiter == to {
                return true;
            }
            for wait in self.waits.iter().filter(|wait| wait.waiter == waiter) {
                if !reached.contains(&wait.holder) {
                    reached.push(wait.holder);
                }
            }
            at += 1;
        }
        false
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }
}
