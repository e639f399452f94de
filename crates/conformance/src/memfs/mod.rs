//! A file system in memory: simple, bounded and deterministic; a model for tests and a target for fuzzing.
//!
//! [`MemFs`] is what a server serves; [`tree`] holds the inodes and names, [`data`] the contents of files, [`locks`]
//! the locks and waiters. One mutex guards all of it. Times come from a clock that counts changes, so that two runs
//! agree. Checking permissions is left to the guest's kernel.

mod accounts;
mod attributes;
mod data;
mod handles;
mod locks;
mod names;
mod open_files;
mod operations;
mod stall;
mod tree;

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use transom_host::Errno;
use transom_host::server::{BlockingMode, Context};

use handles::Handles;
use stall::Stall;
pub use stall::Stalled;
use tree::Tree;

/// How much a [`MemFs`] may hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Inodes, the root included.
    pub inodes: usize,
    /// Bytes of file data, link targets, names and extended attributes.
    pub bytes: u64,
    /// Bytes of one file.
    pub file_bytes: u64,
    /// Open files and directories.
    pub handles: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { inodes: 10_000, bytes: 64 << 20, file_bytes: 16 << 20, handles: 1000 }
    }
}

/// A file system in memory.
pub struct MemFs {
    state: Mutex<State>,
    /// A lock was given back, or a waiter is to give up.
    changed: Condvar,
    /// Of the operations that may ask to be deferred, each of this many does; 0 for none.
    defer_every: u64,
    asked: AtomicU64,
    stall: Stall,
}

/// Everything, protected by [`MemFs`]'s mutex.
struct State {
    tree: Tree,
    handles: Handles,
    waiting: locks::Waiting,
}

/// What a [`MemFs`] holds; a session that ended leaves nothing open and nothing looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Inodes, the root included.
    pub inodes: usize,
    /// As [`Limits::bytes`] counts them.
    pub bytes: u64,
    /// Open files and directories.
    pub handles: usize,
    /// Lookups that were not forgotten, over all inodes but the root.
    pub lookups: u64,
    /// Requests that wait for a lock.
    pub waiters: usize,
}

impl MemFs {
    /// An empty root.
    pub fn new(limits: Limits) -> Self {
        let (tree, handles) = (Tree::new(limits), Handles::new(limits.handles));
        let state = State { tree, handles, waiting: locks::Waiting::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        Self { state, changed, defer_every: 0, asked: AtomicU64::new(0), stall: Stall::default() }
    }

    /// Lets each `every`-th operation that may be deferred do so.
    pub fn deferring(self, every: u64) -> Self {
        Self { defer_every: every, ..self }
    }

    /// Holds up operations that have asked to be deferred, or lets them go on.
    pub fn stall(&self, is_on: bool) {
        self.stall.change(|stalled| stalled.is_on = is_on);
    }

    /// What is held up.
    pub fn stalled(&self) -> Stalled {
        self.stall.get()
    }

    /// What is held now.
    pub fn held(&self) -> Held {
        let state = self.lock();
        Held {
            inodes: state.tree.inode_count(),
            bytes: state.tree.bytes(),
            handles: state.handles.count(),
            lookups: state.tree.lookup_count(),
            waiters: state.waiting.count(),
        }
    }

    /// Panics where the sums do not agree with what is there.
    pub fn check_accounts(&self) {
        self.lock().tree.check_accounts();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// EAGAIN, now and then, where the caller is impatient.
    fn defer(&self, ctx: &Context<'_>) -> Result<(), Errno> {
        let is_asked = ctx.blocking == BlockingMode::MustNotBlock && self.defer_every != 0;
        if is_asked && self.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(self.defer_every) {
            return Err(Errno::AGAIN);
        }
        if ctx.blocking == BlockingMode::MayBlock {
            self.stall.pass();
        }
        Ok(())
    }
}

impl Default for MemFs {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
