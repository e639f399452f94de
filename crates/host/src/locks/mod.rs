//! Locks of the guest as locks of the host, so that other guests and the host see them.
//!
//! A POSIX lock belongs to an inode and an owner: each such pair has an open file description of its own ([`owners`]) with
//! `F_OFD_*` locks on it, which are in the way of any process's and any other description's. flock(2) locks are held by
//! the guest's own open file, whose descriptor the caller passes. Whoever has to wait does so in [`waiters`], on the
//! calling thread, until the lock is free or [`Locks::interrupt`] ends it. [`words`] translates from FUSE.
//!
//! **Deadlocks** are not detected: Linux looks for circles among the locks of processes only, and the answer EDEADLK is
//! never given. A guest's caller that waits in a circle waits until a signal interrupts it. Waiters that are in the circle
//! use up places, of which there is a bound.
//!
//! Lock order: the mutexes of [`owners`] and [`waiters`] are never held together, nor across a system call that may block.

mod owners;
mod signal;
mod waiters;
pub mod words;

pub use owners::Limits;
pub use waiters::WAITERS_MAX;

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{FlockOperation, OFlags},
    io::Errno,
};
use transom_wire::{NodeId, Unique, ids::LockOwner};

use crate::sysfd::{
    ProcFds,
    ofd::{self, Conflict, FileRange, LockKind},
};
use owners::Owners;
use waiters::Waiters;

/// All locks of a session, and who waits for one.
#[derive(Debug)]
pub struct Locks {
    owners: Owners,
    waiters: Waiters,
}

impl Locks {
    /// Locks within `limits`.
    ///
    /// Errors: EBUSY where somebody else in this process handles the signal that interrupts waiters.
    pub fn new(limits: Limits) -> Result<Self, Errno> {
        Ok(Self { owners: Owners::new(limits), waiters: Waiters::new()? })
    }

    /// The lock that would be in the way of `owner`, if there is one; `handle` is any descriptor of the inode that is not
    /// `O_PATH`.
    pub fn get(
        &self,
        inode: NodeId,
        owner: LockOwner,
        range: FileRange,
        kind: LockKind,
        handle: impl AsFd,
    ) -> Result<Option<Conflict>, Errno> {
        match self.owners.find(inode, owner) {
            // Its own locks are not in its way.
            Some(file) => ofd::conflict(&file, range, kind),
            None => ofd::conflict(handle, range, kind),
        }
    }

    /// Locks without waiting. `open` opens the inode anew, and is called at most once: see [`open_for_locks`].
    ///
    /// Errors: EAGAIN where another lock is in the way, ENOLCK beyond the limits, EBADF where `open` did not get the
    /// access that `kind` needs; what `open` answers.
    pub fn set(
        &self,
        inode: NodeId,
        owner: LockOwner,
        range: FileRange,
        kind: LockKind,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        self.owners.with(inode, owner, open, |file| ofd::try_lock(file, range, kind))
    }

    /// As [`Locks::set`], and waits for the lock. Blocks this thread until then.
    ///
    /// Errors: EINTR after [`Locks::interrupt`], ENOLCK where [`WAITERS_MAX`] wait already, EBADF where the owner's locks
    /// were released meanwhile.
    pub fn set_waiting(
        &self,
        unique: Unique,
        inode: NodeId,
        owner: LockOwner,
        range: FileRange,
        kind: LockKind,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        self.owners.with(inode, owner, open, |file| self.waiters.wait(unique, || ofd::lock(file, range, kind)))
    }

    /// Gives back what `owner` has locked of `range`.
    pub fn unset(&self, inode: NodeId, owner: LockOwner, range: FileRange) -> Result<(), Errno> {
        if range.is_all() {
            self.owners.release(inode, owner);
            return Ok(());
        }
        match self.owners.find(inode, owner) {
            Some(file) => ofd::unlock(&file, range),
            None => Ok(()),
        }
    }

    /// Changes the flock of the open file `handle`; `None` unlocks. Errors: EAGAIN where another lock is in the way.
    pub fn flock(&self, handle: impl AsFd, kind: Option<LockKind>) -> Result<(), Errno> {
        let operation = match kind {
            Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
            Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
            None => FlockOperation::NonBlockingUnlock,
        };
        rustix::fs::flock(handle, operation)
    }

    /// As [`Locks::flock`], and waits for the lock. Blocks this thread until then, as [`Locks::set_waiting`] does.
    pub fn flock_waiting(&self, unique: Unique, handle: impl AsFd, kind: LockKind) -> Result<(), Errno> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::LockShared,
            LockKind::Exclusive => FlockOperation::LockExclusive,
        };
        self.waiters.wait(unique, || rustix::fs::flock(&handle, operation))
    }

    /// Gives back all POSIX locks that `owner` has on `inode`: FLUSH, and RELEASE with an owner. Cheap without locks.
    pub fn release_owner(&self, inode: NodeId, owner: LockOwner) {
        self.owners.release(inode, owner);
    }

    /// Gives back all POSIX locks on `inode`: the guest has forgotten it. Cheap without locks.
    pub fn release_inode(&self, inode: NodeId) {
        self.owners.release_inode(inode);
    }

    /// Ends the session: every waiter is interrupted, every POSIX lock given back.
    pub fn release_all(&self) {
        self.waiters.interrupt_all();
        self.owners.release_all();
    }

    /// Wakes the request `unique` if it waits, or will presently. Does not wait for it.
    pub fn interrupt(&self, unique: Unique) {
        self.waiters.interrupt(unique);
    }

    /// Wakes all that wait now, without waiting for them. A request that begins to wait a moment later is not woken: who
    /// stops a queue repeats this until its requests are answered.
    pub fn interrupt_all(&self) {
        self.waiters.interrupt_all();
    }

    /// Descriptors in use, one for each inode and owner with locks.
    pub fn descriptors(&self) -> usize {
        self.owners.count()
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiters.count()
    }
}

/// Opens the inode behind `fd` for [`Locks::set`]: for reading and writing, or for as much of it as is allowed.
///
/// The guest's kernel has checked that the caller's own file is open for what its lock needs.
pub fn open_for_locks(proc_fds: &ProcFds, fd: impl AsFd) -> Result<OwnedFd, Errno> {
    let open = |access| proc_fds.reopen(&fd, access | OFlags::NONBLOCK | OFlags::NOCTTY);
    // A running program (ETXTBSY), a read-only mount, permissions: the rest is enough for shared locks.
    open(OFlags::RDWR).or_else(|_| open(OFlags::RDONLY)).or_else(|_| open(OFlags::WRONLY))
}

#[cfg(test)]
#[path = "locks_test.rs"]
mod locks_test;
