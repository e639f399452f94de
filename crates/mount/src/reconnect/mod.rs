//! A mount that outlives its daemon: `-o reconnect`.
//!
//! The kernel knows inodes and open files by numbers, and a new daemon knows none of the old one's. So the mount gives
//! the kernel numbers of its own ([`inodes`], [`handles`]), and exchanges them for the daemon's in requests and replies
//! ([`request`], [`reply`], [`stage`]). When the daemon is gone, [`supervise`] gets another one, [`restore`] has it
//! look up the inodes and open the files, and requests that were not answered are sent again if that is safe
//! ([`supervise`]). [`waiting`] reads the kernel's requests meanwhile.
//!
//! Locks: `tables`, `interrupted`, `agreement` and `end`, each for a moment, with nothing under it.

mod agreement;
mod handles;
mod inodes;
#[cfg(test)]
mod numbers_test;
mod queries;
mod reachable;
mod reply;
mod request;
mod restore;
#[cfg(test)]
mod restore_test;
mod retry;
mod stage;
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

use super::{MountEnd, forgets::parse_forgets};
pub use agreement::IncompatibleDaemon;
use agreement::InitAgreement;
use handles::Handles;
use inodes::{Forgotten, Inodes};
pub(super) use reachable::ensure_reachable;
pub(super) use request::RenumberVerdict;
pub(super) use restore::{is_directory_shared, record_agreement};
pub(super) use stage::ReconnectStage;
pub(super) use supervise::Supervisor;

/// The most interrupts that are remembered. The kernel does not repeat an interrupt when a request is repeated.
const INTERRUPTED_MAX: usize = 256;

/// The state that outlives a connection.
pub(super) struct Reconnect {
    tables: Mutex<Tables>,
    /// The newest requests that the current daemon was told to interrupt.
    interrupted: Mutex<VecDeque<u64>>,
    /// The length of `interrupted`: stored under its lock, read without.
    interrupted_count: AtomicUsize,
    /// What INIT has agreed on with the kernel.
    agreement: Mutex<Option<InitAgreement>>,
    /// The end of the mount, as opposed to that of one connection.
    end: Mutex<Option<MountEnd>>,
    /// Readable once the mount has ended.
    ended: OwnedFd,
}

/// What the kernel's numbers refer to.
#[derive(Debug, Default)]
struct Tables {
    inodes: Inodes,
    handles: Handles,
    /// References that the current daemon is still to be told to drop.
    owed: Vec<Forgotten>,
}

impl Reconnect {
    /// Creates empty tables.
    ///
    /// # Errors
    /// The eventfd could not be created.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            tables: Mutex::default(),
            interrupted: Mutex::default(),
            interrupted_count: AtomicUsize::new(0),
            agreement: Mutex::new(None),
            end: Mutex::new(None),
            ended: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Records the reply to INIT that the kernel gets, and the inode number of the shared directory.
    fn set_agreement(&self, reply: &[u8], root: Option<u64>) {
        *self.agreement.lock() = Some(InitAgreement::new(reply, root));
    }

    /// Ends the mount for `reason`, unless it has ended.
    pub(super) fn end(&self, reason: MountEnd) {
        self.end.lock().get_or_insert(reason);
        // Fails only for a bad descriptor or buffer.
        let _ = rustix::io::write(&self.ended, &1u64.to_ne_bytes());
    }

    /// Returns why the mount has ended, if it has.
    pub(super) fn cause(&self) -> Option<MountEnd> {
        *self.end.lock()
    }

    /// Returns a descriptor that is readable once the mount has ended.
    fn over(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Notes that the daemon is told to interrupt the request `unique`.
    fn note_interrupt(&self, unique: u64) {
        let mut interrupted = self.interrupted.lock();
        if interrupted.len() == INTERRUPTED_MAX {
            interrupted.pop_front();
        }
        interrupted.push_back(unique);
        self.interrupted_count.store(interrupted.len(), Ordering::Relaxed);
    }

    /// Notes that the request `unique` was answered.
    fn forget_interrupt(&self, unique: u64) {
        // An interrupt that another thread notes at this moment is of no use any more, and is dropped in time.
        if self.interrupted_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut interrupted = self.interrupted.lock();
        interrupted.retain(|other| *other != unique);
        self.interrupted_count.store(interrupted.len(), Ordering::Relaxed);
    }

    /// Removes `handle`, which the kernel closes, if the daemon does not have it open. Returns whether it was removed.
    fn close_lost(&self, handle: Handle) -> bool {
        let mut tables = self.tables.lock();
        let is_lost = tables.handles.known(handle).is_err();
        if is_lost {
            // An error means that the handle is unknown: there is nothing to remove.
            let _ = tables.handles.released(handle);
        }
        is_lost
    }

    /// Notes that the daemon is gone. Returns the requests that it was told to interrupt.
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
    /// Handles a FORGET or BATCH_FORGET of the kernel. Returns what the daemon is to forget.
    fn forgotten(&mut self, message: &[u8]) -> Vec<Forgotten> {
        parse_forgets(message).into_iter().filter_map(|(nodeid, count)| self.inodes.forget(nodeid, count)).collect()
    }
}

/// Returns the arguments of a transomd for such a mount. A file's time of birth shows whether another file has got its
/// number.
pub(super) fn daemon_args() -> Vec<OsString> {
    vec!["--birth-times".into()]
}
