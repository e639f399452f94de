//! One owner of POSIX locks on one inode, and the open file description of the host that holds them.
//!
//! The description is open for what the guest's own open file is open for. A lock that needs more comes through another
//! open file, and moves the owner to a description that is open for more.
//!
//! Lock order: a holder's description, then the table of [`super::owners`].

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::{fs::OFlags, io::Errno};
use transom_wire::{NodeId, ids::LockOwner};

use super::ranges::Ranges;
use crate::sysfd::{
    ProcFds,
    ofd::{self, FileRange, LockKind},
};

/// One owner on one inode. An owner that ends and comes back is another holder.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) inode: NodeId,
    pub(super) owner: LockOwner,
    /// Held across the system calls that change locks without waiting and until their outcome is recorded, so that the
    /// table has the order of the kernel.
    description: Mutex<Description>,
    /// Open files of the guest through which the owner has asked for locks. Protected by the table's mutex.
    open_files: AtomicUsize,
}

/// An open file description, and what it is open for.
#[derive(Debug)]
pub(super) struct Description {
    /// Who waits for a lock has a clone.
    pub(super) fd: Arc<OwnedFd>,
    mode: OFlags,
}

/// The owners that have asked for POSIX locks through one open file of the guest.
///
/// FLUSH ends a process's locks. Nothing but RELEASE ends those of an open file description, and those of a process whose
/// FLUSH was not sent because writing back its data failed.
#[derive(Debug, Default)]
pub struct LockUsers(Mutex<Users>);

#[derive(Debug, Default)]
struct Users {
    holders: Vec<Weak<Holder>>,
    is_released: bool,
}

/// [`LockUsers`] that have ended are forgotten when there are this many, and then whenever their number has doubled.
const USERS_MIN: usize = 16;

impl Holder {
    pub(super) fn new(inode: NodeId, owner: LockOwner, fd: OwnedFd) -> Result<Self, Errno> {
        let description = Mutex::new(Description::new(fd)?);
        Ok(Self { inode, owner, description, open_files: AtomicUsize::new(0) })
    }

    pub(super) fn description(&self) -> MutexGuard<'_, Description> {
        self.description.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one open file less; returns whether it was the last one.
    pub(super) fn leave_open_file(&self) -> bool {
        self.open_files.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

impl Description {
    fn new(fd: OwnedFd) -> Result<Self, Errno> {
        let mode = rustix::fs::fcntl_getfl(&fd)? & OFlags::RWMODE;
        Ok(Self { fd: Arc::new(fd), mode })
    }

    /// Returns whether it is open for what a lock of `kind` needs.
    pub(super) fn allows(&self, kind: LockKind) -> bool {
        match kind {
            LockKind::Shared => self.mode != OFlags::WRONLY,
            LockKind::Exclusive => self.mode != OFlags::RDONLY,
        }
    }

    /// Moves `locks`, which are all that it holds, to a description that allows `kind` too.
    ///
    /// Errors: EBADF where `open` does not return such a one, or where an exclusive lock would have to be moved, which
    /// other owners could take meanwhile; those of `open`.
    pub(super) fn widen(
        &mut self,
        locks: &Ranges,
        kind: LockKind,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let wider = Self::new(open()?)?;
        if !wider.allows(kind) || locks.iter().any(|(_, held)| held == LockKind::Exclusive) {
            return Err(Errno::BADF);
        }
        // No exclusive lock of anybody else is there, and shared ones do not exclude each other.
        locks.iter().try_for_each(|(range, held)| ofd::try_lock(&wider.fd, range, held))?;
        let narrower = std::mem::replace(self, wider);
        // It stays open as long as somebody waits by it.
        ofd::unlock(&narrower.fd, FileRange::ALL)
    }
}

impl LockUsers {
    /// Notes that `holder` asks for a lock through this open file. The caller holds the table's mutex.
    ///
    /// Errors: EBADF after RELEASE.
    pub(super) fn add(&self, holder: &Arc<Holder>) -> Result<(), Errno> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if users.is_released {
            return Err(Errno::BADF);
        }
        if users.holders.iter().any(|user| std::ptr::eq(user.as_ptr(), Arc::as_ptr(holder))) {
            return Ok(());
        }
        if users.holders.len() >= USERS_MIN && users.holders.len() == users.holders.capacity() {
            users.holders.retain(|user| user.strong_count() > 0);
        }
        users.holders.push(Arc::downgrade(holder));
        holder.open_files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes all that were noted; no more are.
    pub(super) fn release(&self) -> Vec<Weak<Holder>> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        users.is_released = true;
        std::mem::take(&mut users.holders)
    }
}

/// Opens the file of `handle` anew for [`super::Locks::set`], for no more than `handle` is open for, except that a file
/// which may be written is read too where that is allowed: the same owner may want shared locks later.
pub fn open_for_locks(proc_fds: &ProcFds, handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let modes: &[OFlags] = match rustix::fs::fcntl_getfl(handle)? & OFlags::RWMODE {
        OFlags::RDONLY => &[OFlags::RDONLY],
        OFlags::WRONLY => &[OFlags::RDWR, OFlags::WRONLY],
        // Permissions and mounts change while a file is open: what is left is enough for some locks.
        _ => &[OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY],
    };
    let mut outcome = Err(Errno::BADF);
    for &mode in modes {
        outcome = proc_fds.reopen(handle, mode | OFlags::NONBLOCK | OFlags::NOCTTY);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_that_have_ended_take_no_memory() {
        let users = LockUsers::default();
        let stays = Arc::new(holder(0));
        users.add(&stays).unwrap();
        for number in 1..10_000 {
            users.add(&Arc::new(holder(number))).unwrap();
            users.add(&stays).unwrap();
        }
        assert!(users.0.lock().unwrap().holders.capacity() <= 2 * USERS_MIN);
        let left: Vec<_> = users.release().iter().filter_map(Weak::upgrade).collect();
        assert!(left.len() == 1 && Arc::ptr_eq(&left[0], &stays) && stays.leave_open_file());
    }

    fn holder(number: u64) -> Holder {
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        Holder::new(NodeId(1), LockOwner(number.into()), fd).unwrap()
    }
}
