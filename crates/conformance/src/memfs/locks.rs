//! Record locks: the holders of ranges, and the waiters.

use transom_host::Errno;
use transom_wire::ops::lk::{FileLock, LkIn};

/// Locks of one inode; each further one is ENOLCK.
const LOCKS_MAX: usize = 256;

/// A lock on a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lock {
    owner: u64,
    pid: u32,
    start: u64,
    /// Inclusive.
    end: u64,
    is_exclusive: bool,
}

/// Requests that wait for a lock, and which of them are to give up.
#[derive(Default)]
pub(super) struct Waiting {
    /// (unique, has been interrupted)
    requests: Vec<(u64, bool)>,
}

/// What SETLK asks for.
pub(super) enum Wanted {
    Lock(Lock),
    Unlock { owner: u64, start: u64, end: u64 },
}

impl Wanted {
    /// Parses a lock request.
    ///
    /// # Errors
    /// `EINVAL` if the type or the range is invalid.
    pub(super) fn parse(arg: &LkIn) -> Result<Self, Errno> {
        let (owner, start, end) = (arg.owner.get(), arg.lk.start.get(), arg.lk.end.get());
        if start > end {
            return Err(Errno::INVAL);
        }
        let lock = |is_exclusive| Self::Lock(Lock { owner, pid: arg.lk.pid.get(), start, end, is_exclusive });
        match arg.lk.type_.get() as i32 {
            libc::F_RDLCK => Ok(lock(false)),
            libc::F_WRLCK => Ok(lock(true)),
            libc::F_UNLCK => Ok(Self::Unlock { owner, start, end }),
            _ => Err(Errno::INVAL),
        }
    }
}

impl Lock {
    /// The lock of another owner that is in the way.
    pub(super) fn conflict(&self, held: &[Self]) -> Option<Self> {
        let is_in_the_way = |other: &&Self| {
            other.owner != self.owner
                && other.start <= self.end
                && self.start <= other.end
                && (self.is_exclusive || other.is_exclusive)
        };
        held.iter().find(is_in_the_way).copied()
    }

    pub(super) fn to_wire(self) -> FileLock {
        let type_ = if self.is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK };
        let (start, end) = (self.start.into(), self.end.into());
        FileLock { start, end, type_: (type_ as u32).into(), pid: self.pid.into() }
    }
}

/// Does what `wanted` says. Errors: EAGAIN where another's lock is in the way, ENOLCK.
pub(super) fn apply(held: &mut Vec<Lock>, wanted: &Wanted) -> Result<(), Errno> {
    let (owner, start, end) = match wanted {
        Wanted::Lock(lock) if lock.conflict(held).is_some() => return Err(Errno::AGAIN),
        Wanted::Lock(lock) => (lock.owner, lock.start, lock.end),
        Wanted::Unlock { owner, start, end } => (*owner, *start, *end),
    };
    if held.len() + 2 > LOCKS_MAX {
        return Err(Errno::NOLCK);
    }
    let mut kept = Vec::with_capacity(held.len() + 2);
    for lock in held.drain(..) {
        if lock.owner != owner || lock.end < start || end < lock.start {
            kept.push(lock);
            continue;
        }
        if lock.start < start {
            kept.push(Lock { end: start - 1, ..lock });
        }
        if lock.end > end {
            kept.push(Lock { start: end + 1, ..lock });
        }
    }
    if let Wanted::Lock(lock) = wanted {
        kept.push(*lock);
    }
    *held = kept;
    Ok(())
}

/// Drops every lock of `owner`.
pub(super) fn drop_owner(held: &mut Vec<Lock>, owner: u64) {
    held.retain(|lock| lock.owner != owner);
}

impl Waiting {
    pub(super) fn begin(&mut self, unique: u64) {
        self.requests.push((unique, false));
    }

    /// True where the request is to give up.
    pub(super) fn is_interrupted(&self, unique: u64) -> bool {
        self.requests.iter().any(|&(waiting, is_interrupted)| waiting == unique && is_interrupted)
    }

    pub(super) fn end(&mut self, unique: u64) {
        if let Some(index) = self.requests.iter().position(|&(waiting, _)| waiting == unique) {
            self.requests.swap_remove(index);
        }
    }

    pub(super) fn interrupt(&mut self, is_meant: impl Fn(u64) -> bool) {
        self.requests.iter_mut().filter(|(unique, _)| is_meant(*unique)).for_each(|request| request.1 = true);
    }

    pub(super) fn count(&self) -> usize {
        self.requests.len()
    }
}
