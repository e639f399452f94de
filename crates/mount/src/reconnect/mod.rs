//! A mount that outlives its daemon: `-o reconnect`.
//!
//! The kernel keeps inodes and open files by numbers, and a new daemon knows none of the old one's. So the mount gives the kernel
//! numbers of its own ([`inodes`], [`handles`]) and puts the daemon's in their place on the way ([`request`], [`reply`], [`carry`]).
//! When the daemon is gone, [`supervise`] gets another one, [`restore`] has it look up the inodes and open the files, and what
//! was not answered is sent again where that is right ([`repeat`]); [`waiting`] reads the kernel's requests meanwhile.
//!
//! Locks: `tables`, `interrupted`, `promise` and `end`, each for a moment, with nothing under it.

mod carry;
mod converse;
mod handles;
mod inodes;
mod limit;
#[cfg(test)]
mod numbers_test;
mod promise;
mod reachable;
mod reply;
mod request;
mod restore;
#[cfg(test)]
mod restore_test;
mod supervise;
#[cfg(test)]
mod tables_test;
mod waiting;

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use transom_wire::Handle;

use super::{End, forgets::forgets};
use handles::Handles;
use inodes::{Forgotten, Inodes};
use promise::Promise;
pub use promise::Unfit;
pub(super) use reachable::reachable;
pub(super) use supervise::Supervisor;

/// Interrupts that are remembered: the kernel does not repeat them when the request is.
const INTERRUPTED_MAX: usize = 256;

/// What outlives a connection.
pub(super) struct Reconnect {
    tables: Mutex<Tables>,
    /// Requests that the present daemon was told to interrupt, the newest.
    interrupted: Mutex<VecDeque<u64>>,
    /// How many those are: stored under the lock, read without.
    interrupted_count: AtomicUsize,
    /// What INIT has promised the kernel.
    promise: Mutex<Option<Promise>>,
    /// The end of the mount rather than of one connection.
    end: Mutex<Option<End>>,
    /// Readable from then on.
    over: OwnedFd,
}

/// What the kernel's numbers stand for.
#[derive(Debug, Default)]
struct Tables {
    inodes: Inodes,
    handles: Handles,
    /// For the present daemon, which nobody could tell yet.
    owed: Vec<Forgotten>,
}

impl Reconnect {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            tables: Mutex::default(),
            interrupted: Mutex::default(),
            interrupted_count: AtomicUsize::new(0),
            promise: Mutex::new(None),
            end: Mutex::new(None),
            over: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The kernel is promised `answer`, and that the shared directory's inode has this number.
    pub(super) fn promise(&self, answer: &[u8], root: Option<u64>) {
        *self.promise.lock() = Some(Promise::new(answer, root));
    }

    /// Ends the mount for `why`, unless it has ended.
    pub(super) fn end(&self, why: End) {
        self.end.lock().get_or_insert(why);
        // It fails for a bad number or buffer only.
        let _ = rustix::io::write(&self.over, &1u64.to_ne_bytes());
    }

    /// Why the mount has ended, if it has.
    pub(super) fn cause(&self) -> Option<End> {
        *self.end.lock()
    }

    /// Readable once the mount has ended.
    fn over(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }

    /// The daemon is told to interrupt a request.
    pub(super) fn note_interrupt(&self, unique: u64) {
        let mut interrupted = self.interrupted.lock();
        if interrupted.len() == INTERRUPTED_MAX {
            interrupted.pop_front();
        }
        interrupted.push_back(unique);
        self.interrupted_count.store(interrupted.len(), Ordering::Relaxed);
    }

    /// That request has its answer.
    fn forget_interrupt(&self, unique: u64) {
        // One that another thread notes just now is of no use any more, and makes room in time.
        if self.interrupted_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut interrupted = self.interrupted.lock();
        interrupted.retain(|other| *other != unique);
        self.interrupted_count.store(interrupted.len(), Ordering::Relaxed);
    }

    /// The kernel closes `handle`; tells whether that was all, as the daemon does not have it open.
    fn close_lost(&self, handle: Handle) -> bool {
        let mut tables = self.tables.lock();
        let is_lost = tables.handles.known(handle).is_err();
        if is_lost {
            // Neither has anybody a handle that is none.
            let _ = tables.handles.released(handle);
        }
        is_lost
    }

    /// The daemon is gone; gives the requests that it was told to interrupt.
    fn disconnected(&self) -> VecDeque<u64> {
        {
            let mut tables = self.tables.lock();
            tables.inodes.disconnected();
            tables.handles.disconnected();
            tables.owed.clear();
        }
        let mut interrupted = self.interrupted.lock();
        self.interrupted_count.store(0, Ordering::Relaxed);
        std::mem::take(&mut *interrupted)
    }
}

impl Tables {
    /// The kernel forgets what a FORGET or BATCH_FORGET says; gives what the daemon is to forget.
    fn forgotten(&mut self, message: &[u8]) -> Vec<Forgotten> {
        forgets(message).into_iter().filter_map(|(nodeid, count)| self.inodes.forget(nodeid, count)).collect()
    }
}

/// What a transomd that is started for such a mount has to be told: a file's time of birth tells whether it was replaced by
/// one that has its number.
pub(super) fn daemon_args() -> Vec<OsString> {
    vec!["--birth-times".into()]
}
