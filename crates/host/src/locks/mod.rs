//! Guest locks taken as host locks, so that other guests and the host see them.
//!
//! A POSIX lock belongs to an inode and an owner. Each such pair is a [`holder`] with an open file description of its
//! own, on which `F_OFD_*` locks are taken. These conflict with the locks of any other process and description.
//! [`owners`] has all holders and a record of their [`ranges`], from which it finds the owner of a lock; [`waits`]
//! records who waits for whom. [`hand_over`] passes holders to another process. A flock(2) lock is held by the guest's
//! own open file, whose descriptor the caller passes. A request that has to wait does so in [`waiters`], on the calling
//! thread, until the lock is free or [`Locks::interrupt`] ends the wait. [`words`] translates from FUSE.
//!
//! An owner's POSIX locks end with FLUSH, which Linux sends for every close by a process. For owners without a FLUSH,
//! they end with RELEASE of the last open file through which the owner has locked since: see [`LockingFile`].
//!
//! Lock order: `let_go`, then a holder's description, then the table of [`owners`]; the mutex of [`waiters`] is never
//! held together with any. `let_go` and a description's mutex are held across system calls that do not wait for locks,
//! the others across none.

mod hand_over;
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
pub(crate) use ranges::Ranges;

use std::{
    collections::VecDeque,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, atomic::AtomicBool},
};

use rustix::{fs::FlockOperation, io::Errno};
use transom_wire::{NodeId, Unique, ids::LockOwner};

use crate::sysfd::ofd::{self, FileRange, LockKind};
use hand_over::LetGo;
use holder::Holder;
use owners::Owners;
use waiters::Waiters;

/// Limits on POSIX locks of a guest; beyond them, a lock request returns ENOLCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Owners, over all inodes. Each takes a descriptor.
    pub owners: usize,
    /// Owners of one inode.
    pub owners_per_inode: usize,
    /// Locked ranges, over all inodes. Each takes memory here and in the host's kernel.
    pub ranges: usize,
    /// Locked ranges of one inode. The host's kernel walks a list of all of them for each request on that inode.
    pub ranges_per_inode: usize,
}

impl Default for Limits {
    /// 4096 owners in all leave most of the usual descriptor limit to inodes. 1024 for one inode keep a file that
    /// everybody locks from using up the limit. 65536 ranges take about 20 MiB, most of it in the host's kernel; with
    /// 8192 on one inode, each request takes 0.1 to 0.2 ms.
    fn default() -> Self {
        Self { owners: 4096, owners_per_inode: 1024, ranges: 65536, ranges_per_inode: 8192 }
    }
}

/// All locks of a session, and the requests that wait for one.
#[derive(Debug)]
pub(crate) struct Locks {
    owners: Owners,
    waiters: Waiters,
    /// The locks are unlocked for another session, which may not go on.
    is_let_go: AtomicBool,
    /// What has to be taken back, while `is_let_go`.
    let_go: Mutex<VecDeque<LetGo>>,
}

/// A request for a POSIX lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The inode.
    pub inode: NodeId,
    /// The owner of the new lock.
    pub owner: LockOwner,
    /// The requesting process of the guest, 0 if unknown.
    pub pid: u32,
    /// Its bytes.
    pub range: FileRange,
    /// Its kind.
    pub kind: LockKind,
}

/// A conflicting lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Obstacle {
    /// Its bytes.
    pub range: FileRange,
    /// Its kind.
    pub kind: LockKind,
    /// The process of the guest that holds it, or 0 if it is not held by this session.
    pub pid: u32,
}

impl Locks {
    /// Creates an empty set of locks within `limits`.
    ///
    /// # Errors
    ///
    /// EBUSY if something else in this process handles the signal that interrupts waiters.
    pub(crate) fn new(limits: Limits) -> Result<Self, Errno> {
        Ok(Self {
            owners: Owners::new(limits),
            waiters: Waiters::new()?,
            is_let_go: AtomicBool::default(),
            let_go: Mutex::default(),
        })
    }

    /// Returns a lock that conflicts with `wanted`, if there is one. `handle` is any descriptor of the inode that is
    /// not `O_PATH`.
    pub(crate) fn get(&self, wanted: &Wanted, handle: impl AsFd) -> Result<Option<Obstacle>, Errno> {
        let found = match self.owners.find(wanted.inode, wanted.owner) {
            // The holder's own locks do not conflict.
            Some(holder) => {
                let fd = Arc::clone(&holder.description().fd);
                ofd::conflict(&fd, wanted.range, wanted.kind)
            }
            None => ofd::conflict(handle, wanted.range, wanted.kind),
        };
        Ok(found?.map(|found| {
            // All locks of this session belong to descriptions. One with a pid belongs to a process of the host.
            let holder = || self.owners.holder_of(wanted, found.range, found.kind);
            let pid = if found.pid.is_none() { holder() } else { None };
            Obstacle { range: found.range, kind: found.kind, pid: pid.unwrap_or(0) }
        }))
    }

    /// Takes a lock through `file` without waiting. `open` opens the file again: see [`open_for_locks`].
    ///
    /// # Errors
    ///
    /// EAGAIN if another lock conflicts, ENOLCK beyond the limits, EBADF if `open` did not get the access that the
    /// lock needs or the open file was released; the errors of `open`.
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

    /// Like [`Locks::set`], but waits for the lock. Blocks this thread until then.
    ///
    /// # Errors
    ///
    /// EDEADLK if owners of this session would wait for each other, EINTR after [`Locks::interrupt`], ENOLCK if
    /// [`waiters::WAITERS_MAX`] requests wait already, EBADF if the owner's locks were released meanwhile.
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
            // Needed even after the kernel has granted the lock to this thread: another thread of the same owner may
            // have unlocked it already, and the record has to keep the kernel's order.
            match self.owners.try_lock(holder, wanted, &open) {
                Err(Errno::AGAIN) => {}
                outcome => return outcome,
            }
            let _noted = self.owners.begin_wait(holder, wanted)?;
            let fd = Arc::clone(&holder.description().fd);
            self.waiters.wait(unique, || ofd::lock(&fd, wanted.range, wanted.kind))?;
        }
    }

    /// Unlocks `range` for `owner`. Errors: ENOLCK if that splits a lock and the limit is reached.
    pub(crate) fn unset(&self, inode: NodeId, owner: LockOwner, range: FileRange) -> Result<(), Errno> {
        self.owners.unlock(inode, owner, range)
    }

    /// Changes the flock of the open file `handle`; `None` unlocks. Errors: EAGAIN if another lock conflicts.
    pub(crate) fn flock(&self, handle: impl AsFd, kind: Option<LockKind>) -> Result<(), Errno> {
        let operation = match kind {
            Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
            Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
            None => FlockOperation::NonBlockingUnlock,
        };
        rustix::fs::flock(handle, operation)
    }

    /// Like [`Locks::flock`], but waits for the lock. Blocks this thread until then, as [`Locks::set_waiting`] does.
    pub(crate) fn flock_waiting(&self, unique: Unique, handle: impl AsFd, kind: LockKind) -> Result<(), Errno> {
        let operation = match kind {
            LockKind::Shared => FlockOperation::LockShared,
            LockKind::Exclusive => FlockOperation::LockExclusive,
        };
        self.waiters.wait(unique, || rustix::fs::flock(&handle, operation))
    }

    /// Releases all POSIX locks of `owner` on `inode`, for FLUSH and for RELEASE with an owner. Cheap if there are no
    /// locks.
    pub(crate) fn release_owner(&self, inode: NodeId, owner: LockOwner) {
        self.owners.release(inode, owner);
    }

    /// Releases the POSIX locks of owners that have locked `inode` through `file` only, for RELEASE. No further locks
    /// can be taken through `file`.
    pub(crate) fn release_file(&self, inode: NodeId, file: &LockingFile) {
        self.owners.release_file(inode, file);
    }

    /// Releases all POSIX locks on `inode`, which the guest has forgotten. Cheap if there are no locks.
    pub(crate) fn release_inode(&self, inode: NodeId) {
        self.owners.release_inode(inode);
    }

    /// Ends the session: interrupts every waiter and releases every POSIX lock.
    pub(crate) fn release_all(&self) {
        self.waiters.interrupt_all();
        self.owners.release_all();
        self.forget_let_go();
    }

    /// Wakes the request `unique` if it waits or is about to. Does not wait for it.
    pub(crate) fn interrupt(&self, unique: Unique) {
        self.waiters.interrupt(unique);
    }

    /// Discards an interrupt of `unique` that found no request waiting.
    pub(crate) fn forget_interrupt(&self, unique: Unique) {
        self.waiters.forget_interrupt(unique);
    }

    /// Wakes all requests that wait now, without waiting for them. A request that begins to wait a moment later is not
    /// woken: a caller that stops a queue repeats this until its requests are answered.
    pub(crate) fn interrupt_all(&self) {
        self.waiters.interrupt_all();
    }

    /// Returns the number of the descriptor that holds the locks of `owner` on `inode`, if there is one.
    pub(crate) fn descriptor(&self, inode: NodeId, owner: LockOwner) -> Option<RawFd> {
        Some(self.owners.find(inode, owner)?.description().fd.as_raw_fd())
    }

    /// Returns the number of descriptors in use, one for each inode and owner with locks.
    pub(crate) fn descriptors(&self) -> usize {
        self.owners.count()
    }

    /// Returns the number of requests that wait.
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
