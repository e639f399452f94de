//! Locks of the guest as locks of the host, so that other guests and the host see them.
//!
//! A POSIX lock belongs to an inode and an owner: each such pair is a [`holder`], which has an open file description of its
//! own with `F_OFD_*` locks on it. These are in the way of any process's and any other description's. [`owners`] has all
//! holders, with a record of their [`ranges`]: it tells who holds a lock, and [`waits`] who waits for whom. flock(2) locks
//! are held by the guest's own open file, whose descriptor the caller passes. Whoever has to wait does so in [`waiters`],
//! on the calling thread, until the lock is free or [`Locks::interrupt`] ends it. [`words`] translates from FUSE.
//!
//! POSIX locks of an owner end with FLUSH, which Linux sends for every close by a process, and with RELEASE of the last
//! open file through which the owner has locked since, for what has no FLUSH: see [`LockingFile`].
//!
//! Lock order: a holder's description, then the table of [`owners`]; the mutex of [`waiters`] is held with neither. A
//! description's is held across system calls that do not wait for locks, the others across none.

mod holder;
mod open_file;
mod owners;
mod ranges;
mod record;
mod signal;
mod waiters;
mod waits;
pub(crate) mod words;

pub(crate) use holder::open_for_locks;
pub(crate) use open_file::LockingFile;

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::{fs::FlockOperation, io::Errno};
use transom_wire::{NodeId, Unique, ids::LockOwner};

use crate::sysfd::ofd::{self, FileRange, LockKind};
use holder::Holder;
use owners::Owners;
use waiters::Waiters;

/// How much a guest can hold through POSIX locks; beyond it, a lock answers ENOLCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Owners, over all inodes: each is a descriptor.
    pub owners: usize,
    /// Owners of one inode.
    pub owners_per_inode: usize,
    /// Locked ranges, over all inodes: each is memory here and in the host's kernel.
    pub ranges: usize,
    /// Locked ranges of one inode. The host's kernel looks at all of them, in a list, for each request on that inode.
    pub ranges_per_inode: usize,
}

impl Default for Limits {
    /// 4096 owners in all, which leaves most of a usual limit of descriptors to inodes; 1024 for one inode, so that a file
    /// that everybody locks does not take the places of all others. 65536 ranges are about 20 MiB, most of it in the
    /// host's kernel; with 8192 on one inode it takes 0.1 to 0.2 ms for each request.
    fn default() -> Self {
        Self { owners: 4096, owners_per_inode: 1024, ranges: 65536, ranges_per_inode: 8192 }
    }
}

/// All locks of a session, and who waits for one.
#[derive(Debug)]
pub(crate) struct Locks {
    owners: Owners,
    waiters: Waiters,
}

/// A POSIX lock that somebody asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The inode.
    pub inode: NodeId,
    /// Whose lock it is to be.
    pub owner: LockOwner,
    /// The process of the guest that asks, 0 where unknown.
    pub pid: u32,
    /// Its bytes.
    pub range: FileRange,
    /// Its kind.
    pub kind: LockKind,
}

/// A lock that is in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// Its bytes.
    pub range: FileRange,
    /// Its kind.
    pub kind: LockKind,
    /// The process of the guest that holds it, or 0 where this session does not.
    pub pid: u32,
}

impl Locks {
    /// Locks within `limits`.
    ///
    /// Errors: EBUSY where somebody else in this process handles the signal that interrupts waiters.
    pub(crate) fn new(limits: Limits) -> Result<Self, Errno> {
        Ok(Self { owners: Owners::new(limits), waiters: Waiters::new()? })
    }

    /// Returns the lock that is in the way of `wanted`, if there is one; `handle` is any descriptor of the inode that is not
    /// `O_PATH`.
    pub(crate) fn get(&self, wanted: &Wanted, handle: impl AsFd) -> Result<Option<Obstacle>, Errno> {
        let found = match self.owners.find(wanted.inode, wanted.owner) {
            // Its own locks are not in its way.
            Some(holder) => {
                let fd = Arc::clone(&holder.description().fd);
                ofd::conflict(&fd, wanted.range, wanted.kind)
            }
            None => ofd::conflict(handle, wanted.range, wanted.kind),
        };
        Ok(found?.map(|found| {
            // All locks of this session are of descriptions. One with a pid is of a process of the host.
            let holder = || self.owners.holder_of(wanted, found.range, found.kind);
            let pid = if found.pid.is_none() { holder() } else { None };
            Obstacle { range: found.range, kind: found.kind, pid: pid.unwrap_or(0) }
        }))
    }

    /// Locks without waiting, through `file`. `open` opens that anew: see [`open_for_locks`].
    ///
    /// Errors: EAGAIN where another lock is in the way, ENOLCK beyond the limits, EBADF where `open` did not get the
    /// access that the lock needs or the open file was released; what `open` answers.
    pub(crate) fn set(
        &self,
        wanted: &Wanted,
        file: &LockingFile,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let holder = self.owners.enter(wanted, file, &open)?;
        let has_room = self.owners.check_room(wanted.inode);
        let outcome = has_room.and_then(|()| self.owners.try_lock(&holder, wanted, &open));
        if outcome.is_err() {
            self.owners.settle(&holder);
        }
        outcome
    }

    /// As [`Locks::set`], and waits for the lock. Blocks this thread until then.
    ///
    /// Errors: EDEADLK where owners of this session would wait for each other, EINTR after [`Locks::interrupt`], ENOLCK
    /// where [`waiters::WAITERS_MAX`] wait already, EBADF where the owner's locks were released meanwhile.
    pub(crate) fn set_waiting(
        &self,
        unique: Unique,
        wanted: &Wanted,
        file: &LockingFile,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let holder = self.owners.enter(wanted, file, &open)?;
        let has_room = self.owners.check_room(wanted.inode);
        let outcome = has_room.and_then(|()| self.wait_for(unique, &holder, wanted, &open));
        if outcome.is_err() {
            self.owners.settle(&holder);
        }
        outcome
    }

    fn wait_for(
        &self,
        unique: Unique,
        holder: &Holder,
        wanted: &Wanted,
        open: impl Fn() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        loop {
            // Also after the kernel has given the lock to this thread: another one of the same owner may have unlocked it
            // already, and what is recorded has to be in the order of the kernel.
            match self.owners.try_lock(holder, wanted, &open) {
                Err(Errno::AGAIN) => {}
                outcome => return outcome,
            }
            let _noted = self.owners.begin_wait(holder, wanted)?;
            let fd = Arc::clone(&holder.description().fd);
            self.waiters.wait(unique, || ofd::lock(&fd, wanted.range, wanted.kind))?;
        }
    }

    /// Unlocks `range` for `owner`. Errors: ENOLCK where that splits a lock and there are as many locks as may be.
    pub(crate) fn unset(&self, inode: NodeId, owner: LockOwner, range: FileRange) -> Result<(), Errno> {
        self.owners.unlock(inode, owner, range)
    }

    /// Changes the flock of the open file `handle`; `None` unlocks. Errors: EAGAIN where another lock is in the way.
    pub(crate) fn flock(&self, handle: impl AsFd, kind: Option<LockKind>) -> Result<(), Errno> {
        let operation = match kind {
            Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
            Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
            None => FlockOperation::NonBlockingUnlock,
        };
        rustix::fs::flock(handle, operation)
    }

    /// As [`Locks::flock`], and waits for the lock. Blocks this thread until then, as [`Locks::set_waiting`] does.
    pub(crate) fn flock_waiting(&self, unique: Unique, handle: impl AsFd, kind: LockKind) -> Result<(), Errno> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::LockShared,
            LockKind::Exclusive => FlockOperation::LockExclusive,
        };
        self.waiters.wait(unique, || rustix::fs::flock(&handle, operation))
    }

    /// Releases all POSIX locks that `owner` has on `inode`: FLUSH, and RELEASE with an owner. Cheap without locks.
    pub(crate) fn release_owner(&self, inode: NodeId, owner: LockOwner) {
        self.owners.release(inode, owner);
    }

    /// Releases the POSIX locks of owners that have locked `inode` through no other open file than `file`, through which no
    /// more are taken: RELEASE.
    pub(crate) fn release_file(&self, inode: NodeId, file: &LockingFile) {
        self.owners.release_file(inode, file);
    }

    /// Releases all POSIX locks on `inode`: the guest has forgotten it. Cheap without locks.
    pub(crate) fn release_inode(&self, inode: NodeId) {
        self.owners.release_inode(inode);
    }

    /// Ends the session: every waiter is interrupted, every POSIX lock given back.
    pub(crate) fn release_all(&self) {
        self.waiters.interrupt_all();
        self.owners.release_all();
    }

    /// Wakes the request `unique` if it waits, or will presently. Does not wait for it.
    pub(crate) fn interrupt(&self, unique: Unique) {
        self.waiters.interrupt(unique);
    }

    /// Wakes all that wait now, without waiting for them. A request that begins to wait a moment later is not woken: who
    /// stops a queue repeats this until its requests are answered.
    pub(crate) fn interrupt_all(&self) {
        self.waiters.interrupt_all();
    }

    /// Descriptors in use, one for each inode and owner with locks.
    pub(crate) fn descriptors(&self) -> usize {
        self.owners.count()
    }

    /// Requests that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.count()
    }
}

#[cfg(test)]
#[path = "deadlock_test.rs"]
mod deadlock_test;
#[cfg(test)]
#[path = "locks_test.rs"]
mod locks_test;
#[cfg(test)]
#[path = "stress_test.rs"]
mod stress_test;
