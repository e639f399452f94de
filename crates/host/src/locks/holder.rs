//! One owner of POSIX locks on one inode, and the open file description of the host that holds them.
//!
//! The description is open for what the guest's own open file is open for. A lock that needs more comes through another
//! open file, and moves the owner to a description that is open for more.
//!
//! Lock order: a holder's description, then the table of [`super::owners`].

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
}

/// An open file description, and what it is open for.
#[derive(Debug)]
pub(super) struct Description {
    /// Who waits for a lock has a clone.
    pub(super) fd: Arc<OwnedFd>,
    mode: OFlags,
}

impl Holder {
    pub(super) fn new(inode: NodeId, owner: LockOwner, fd: OwnedFd) -> Result<Self, Errno> {
        let description = Mutex::new(Description::new(fd)?);
        Ok(Self { inode, owner, description })
    }

    pub(super) fn description(&self) -> MutexGuard<'_, Description> {
        self.description.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Opens the file of `handle` anew for [`super::Locks::set`], for no more than `handle` is open for, except that a file
/// which may be written is read too where that is allowed: the same owner may want shared locks later.
pub(crate) fn open_for_locks(proc_fds: &ProcFds, handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let modes: &[OFlags] = match rustix::fs::fcntl_getfl(handle)? & OFlags::RWMODE {
        OFlags::RDONLY => &[OFlags::RDONLY],
        OFlags::WRONLY => &[OFlags::RDWR, OFlags::WRONLY],
        // Permissions and mounts change while a file is open: what is left is enough for some locks.
        _ => &[OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY],
    };
    let mut outcome = Err(Errno::BADF);
    for &mode in modes {
        outcome = proc_fds.reopen(handle, mode | OFlags::NONBLOCK | OFlags::NOCTTY);
        // After any other error a narrower description would only hide the cause.
        if !matches!(outcome, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY)) {
            break;
        }
    }
    outcome
}
