//! Locks on files: POSIX locks of a process, locks of an open file, and flock.
//!
//! The server keeps them if INIT negotiated it and the server knows the operations. Otherwise this guest keeps them
//! itself, as in Linux: they then apply among the users of the volume ([`local`]), and nobody else sees them.

mod local;
mod ranges;
#[cfg(test)]
mod ranges_test;

use core::sync::atomic::Ordering;

use transom_wire::{
    linux::{F_RDLCK, F_UNLCK, F_WRLCK},
    ops::lk::{FileLock, LK_FLOCK, LkIn},
};

use super::{Inode, OpenFile};
use crate::{Errno, Platform, session::Caller};
use local::Family;
use ranges::{Held, Owner};

pub(crate) use local::LocalLocks;

/// The last byte of a lock that reaches to the end of the file, wherever that is.
const TO_THE_END: u64 = i64::MAX as u64;

/// The kind of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others may hold shared locks too.
    Shared,
    /// Nobody else may hold a lock.
    Exclusive,
    /// Releases the lock.
    Unlocked,
}

/// The owner of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    /// A process, or what corresponds to one, by a number that the caller chooses. Closing any descriptor of the file
    /// releases its locks.
    Process(u64),
    /// The open file.
    OpenFile,
}

/// A lock on a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// The kind of the lock.
    pub kind: LockKind,
    /// The first byte.
    pub start: u64,
    /// Number of bytes, 0 for all bytes up to the end of the file.
    pub len: u64,
    /// The holder, as the server reports it. For a lock that this guest keeps: the caller's pid, or `u32::MAX` for a
    /// lock of an open file.
    pub pid: u32,
}

impl<P: Platform> OpenFile<P> {
    /// Returns the lock that conflicts with `lock`, if there is one.
    pub fn get_lock(&self, caller: &Caller<'_>, owner: LockOwner, lock: &Lock) -> Result<Option<Lock>, Errno> {
        let arg = self.lk_in(caller, owner, lock)?;
        let inode = self.inode();
        let answer = self.ask_server(Family::Ranges, || inode.shared.session.getlk(caller, inode.nodeid(), &arg))?;
        let Some(found) = answer else { return self.get_lock_here(caller, owner, lock, &arg.lk) };
        let kind = match found.type_.get() {
            F_RDLCK => LockKind::Shared,
            F_WRLCK => LockKind::Exclusive,
            _ => return Ok(None),
        };
        Ok(Some(told(kind, found.start.get(), found.end.get(), found.pid.get())))
    }

    /// Sets or releases a lock. With `is_waiting`, waits until no lock conflicts or [`Caller::interrupt`] is raised.
    ///
    /// Errors: EAGAIN, EINTR, EDEADLK, EBADF if the file is not open for the access that the lock covers.
    pub fn set_lock(&self, caller: &Caller<'_>, owner: LockOwner, lock: &Lock, is_waiting: bool) -> Result<(), Errno> {
        match lock.kind {
            LockKind::Shared if !self.is_readable() => return Err(Errno::BADF),
            LockKind::Exclusive if !self.is_writable() => return Err(Errno::BADF),
            _ => {}
        }
        let arg = self.lk_in(caller, owner, lock)?;
        let answer = self.ask_server(Family::Ranges, || self.send_lock(caller, &arg, is_waiting))?;
        match answer {
            Some(()) => Ok(()),
            None => {
                self.set_here(caller, Family::Ranges, lock.kind, self.held(caller, owner, lock, &arg.lk), is_waiting)
            }
        }
    }

    /// Locks the whole open file as flock(2) does: if it has a lock of the other kind, that is released first.
    ///
    /// Errors: EAGAIN, EINTR.
    pub fn flock(&self, caller: &Caller<'_>, kind: LockKind, is_waiting: bool) -> Result<(), Errno> {
        let whole = Lock { kind, start: 0, len: 0, pid: 0 };
        let mut arg = self.lk_in(caller, LockOwner::OpenFile, &whole)?;
        arg.lk_flags = LK_FLOCK.into();
        self.has_flock.store(true, Ordering::Relaxed);
        let answer = self.ask_server(Family::Whole, || self.send_lock(caller, &arg, is_waiting))?;
        match answer {
            Some(()) => Ok(()),
            None => {
                let held = self.held(caller, LockOwner::OpenFile, &whole, &arg.lk);
                self.set_here(caller, Family::Whole, kind, held, is_waiting)
            }
        }
    }

    /// Releases the locks of a process on the file that this guest keeps.
    pub(super) fn end_process_locks(&self, lock_owner: u64) {
        self.end_here(Family::Ranges, Owner::Process(lock_owner));
    }

    /// Releases the open file's own locks that this guest keeps.
    pub(super) fn end_own_locks(&self) {
        self.end_here(Family::Ranges, Owner::OpenFile(self.owner()));
        self.end_here(Family::Whole, Owner::OpenFile(self.owner()));
    }

    /// Returns the server's reply, or `None` if it keeps no locks of the family.
    fn ask_server<T>(&self, family: Family, ask: impl FnOnce() -> Result<T, Errno>) -> Result<Option<T>, Errno> {
        let locks = &self.inode().shared.locks;
        if locks.are_here(family) {
            return Ok(None);
        }
        match ask() {
            Err(Errno::NOSYS) => {
                locks.keep_here(family);
                Ok(None)
            }
            answer => answer.map(Some),
        }
    }

    fn send_lock(&self, caller: &Caller<'_>, arg: &LkIn, is_waiting: bool) -> Result<(), Errno> {
        let (session, nodeid) = (&self.inode().shared.session, self.inode().nodeid());
        if is_waiting && arg.lk.type_ != F_UNLCK {
            session.setlkw(caller, nodeid, arg)
        } else {
            session.setlk(caller, nodeid, arg)
        }
    }

    fn get_lock_here(
        &self,
        caller: &Caller<'_>,
        owner: LockOwner,
        lock: &Lock,
        range: &FileLock,
    ) -> Result<Option<Lock>, Errno> {
        if lock.kind == LockKind::Unlocked {
            return Err(Errno::INVAL);
        }
        let inode = self.inode();
        let found =
            inode.shared.locks.conflict((inode.address(), Family::Ranges), &self.held(caller, owner, lock, range));
        Ok(found.map(|held| {
            let kind = if held.is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
            told(kind, held.start, held.last, held.pid)
        }))
    }

    fn set_here(
        &self,
        caller: &Caller<'_>,
        family: Family,
        kind: LockKind,
        held: Held,
        is_waiting: bool,
    ) -> Result<(), Errno> {
        let shared = &self.inode().shared;
        let key = (self.inode().address(), family);
        if kind == LockKind::Unlocked {
            shared.locks.clear(&shared.session, key, held.owner, held.start, held.last);
            return Ok(());
        }
        shared.locks.set(&shared.session, caller, key, held, is_waiting)
    }

    fn end_here(&self, family: Family, owner: Owner) {
        let shared = &self.inode().shared;
        shared.locks.clear(&shared.session, (self.inode().address(), family), owner, 0, TO_THE_END);
    }

    fn held(&self, caller: &Caller<'_>, owner: LockOwner, lock: &Lock, range: &FileLock) -> Held {
        let (owner, pid) = match owner {
            LockOwner::Process(owner) => (Owner::Process(owner), caller.pid),
            LockOwner::OpenFile => (Owner::OpenFile(self.owner()), u32::MAX),
        };
        let is_exclusive = lock.kind == LockKind::Exclusive;
        Held { owner, is_exclusive, start: range.start.get(), last: range.end.get(), pid }
    }

    fn lk_in(&self, caller: &Caller<'_>, owner: LockOwner, lock: &Lock) -> Result<LkIn, Errno> {
        let end = match lock.len {
            0 => TO_THE_END,
            len => lock.start.checked_add(len - 1).filter(|&end| end <= TO_THE_END).ok_or(Errno::OVERFLOW)?,
        };
        if lock.start > end {
            return Err(Errno::INVAL);
        }
        let type_ = match lock.kind {
            LockKind::Shared => F_RDLCK,
            LockKind::Exclusive => F_WRLCK,
            LockKind::Unlocked => F_UNLCK,
        };
        let owner = match owner {
            LockOwner::Process(owner) => owner,
            LockOwner::OpenFile => self.owner(),
        };
        Ok(LkIn {
            fh: self.handle().into(),
            owner: owner.into(),
            lk: FileLock { start: lock.start.into(), end: end.into(), type_: type_.into(), pid: caller.pid.into() },
            lk_flags: 0.into(),
            padding: 0.into(),
        })
    }
}

impl<P: Platform> Inode<P> {
    /// Returns the inode's address, which is unique for as long as the inode exists.
    fn address(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    /// Releases every lock on the file that this guest keeps: nobody has it open.
    pub(super) fn forget_locks(&self) {
        self.shared.locks.forget_file(self.address());
    }
}

fn told(kind: LockKind, start: u64, last: u64, pid: u32) -> Lock {
    let len = if last >= TO_THE_END { 0 } else { last.saturating_sub(start) + 1 };
    Lock { kind, start, len, pid }
}
