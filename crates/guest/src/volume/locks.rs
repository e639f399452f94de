//! Locks on files: of a process, of an open file, and flock.
//!
//! They are the server's where INIT settled it; elsewhere EOPNOTSUPP.

use core::sync::atomic::Ordering;

use transom_wire::ops::{
    init::InitFlags,
    lk::{FileLock, LK_FLOCK, LkIn},
};

use super::OpenFile;
use crate::{Errno, Platform, session::Caller};

const F_RDLCK: u32 = 0;
const F_WRLCK: u32 = 1;
const F_UNLCK: u32 = 2;

/// The last byte of a lock that reaches to the end of the file, wherever that is.
const TO_THE_END: u64 = i64::MAX as u64;

/// What a lock lets others do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Others may lock likewise.
    Shared,
    /// Nobody else.
    Exclusive,
    /// The lock ends.
    Unlocked,
}

/// Whose a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOwner {
    /// A process or what stands for one, by a number of the caller's; closing any descriptor of the file ends its locks.
    Process(u64),
    /// The open file.
    OpenFile,
}

/// A lock on a range of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lock {
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// The first byte.
    pub start: u64,
    /// How many, 0 for all to the end of the file.
    pub len: u64,
    /// Who holds it, as the server tells it.
    pub pid: u32,
}

impl<P: Platform> OpenFile<P> {
    /// The lock that stands in the way of `lock`, if there is one.
    pub fn get_lock(&self, caller: &Caller<'_>, owner: LockOwner, lock: &Lock) -> Result<Option<Lock>, Errno> {
        self.settled(InitFlags::POSIX_LOCKS)?;
        let arg = self.lk_in(caller, owner, lock)?;
        let found = self.inode().shared.session.getlk(caller, self.inode().nodeid(), &arg)?;
        let kind = match found.type_.get() {
            F_RDLCK => LockKind::Shared,
            F_WRLCK => LockKind::Exclusive,
            _ => return Ok(None),
        };
        let (start, end) = (found.start.get(), found.end.get());
        let len = if end >= TO_THE_END { 0 } else { end.saturating_sub(start) + 1 };
        Ok(Some(Lock { kind, start, len, pid: found.pid.get() }))
    }

    /// Sets or ends a lock, and where `is_waiting`, until nobody is in the way or [`Caller::interrupt`] is raised.
    ///
    /// Errors: EAGAIN, EINTR, EDEADLK, EBADF where the file is not open for what the lock is about.
    pub fn set_lock(&self, caller: &Caller<'_>, owner: LockOwner, lock: &Lock, is_waiting: bool) -> Result<(), Errno> {
        self.settled(InitFlags::POSIX_LOCKS)?;
        match lock.kind {
            LockKind::Shared if !self.is_readable() => return Err(Errno::BADF),
            LockKind::Exclusive if !self.is_writable() => return Err(Errno::BADF),
            _ => {}
        }
        self.send_lock(caller, &self.lk_in(caller, owner, lock)?, is_waiting)
    }

    /// Locks the whole open file as flock(2) does.
    pub fn flock(&self, caller: &Caller<'_>, kind: LockKind, is_waiting: bool) -> Result<(), Errno> {
        self.settled(InitFlags::FLOCK_LOCKS)?;
        let whole = Lock { kind, start: 0, len: 0, pid: 0 };
        let mut arg = self.lk_in(caller, LockOwner::OpenFile, &whole)?;
        arg.lk_flags = LK_FLOCK.into();
        self.has_flock.store(true, Ordering::Relaxed);
        self.send_lock(caller, &arg, is_waiting)
    }

    fn send_lock(&self, caller: &Caller<'_>, arg: &LkIn, is_waiting: bool) -> Result<(), Errno> {
        let (session, nodeid) = (&self.inode().shared.session, self.inode().nodeid());
        if is_waiting && arg.lk.type_ != F_UNLCK {
            session.setlkw(caller, nodeid, arg)
        } else {
            session.setlk(caller, nodeid, arg)
        }
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

    fn settled(&self, flag: InitFlags) -> Result<(), Errno> {
        let is_settled = self.inode().shared.session.negotiated().flags.contains(flag);
        if is_settled { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }
}
