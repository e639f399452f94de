//! One owner of POSIX locks on one inode, and the host's open file description that holds them.
//!
//! The description has at most the access mode of the guest's own open file. A lock that needs more access comes
//! through another open file and moves the owner to a description with that access.
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

/// One owner on one inode. An owner that ends and comes back gets a new holder.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) inode: NodeId,
    pub(super) owner: LockOwner,
    /// Held while system calls change locks without waiting and until their result is recorded, so that the table
    /// keeps the kernel's order.
    description: Mutex<Description>,
}

/// An open file description with its access mode.
#[derive(Debug)]
pub(super) struct Description {
    /// Cloned by each thread that waits for a lock.
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

    /// Returns whether the access mode suffices for a lock of `kind`.
    pub(super) fn allows(&self, kind: LockKind) -> bool {
        match kind {
            LockKind::Shared => self.mode != OFlags::WRONLY,
            LockKind::Exclusive => self.mode != OFlags::RDONLY,
        }
    }

    /// Moves `locks`, which are all that the holder has, to a description that also allows `kind`.
    ///
    /// # Errors
    ///
    /// EBADF if `open` does not return such a description, or if an exclusive lock would have to be moved, which other
    /// owners could take meanwhile; the errors of `open`.
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
        // Nobody else holds an exclusive lock here, and shared locks do not exclude each other.
        locks.iter().try_for_each(|(range, held)| ofd::try_lock(&wider.fd, range, held))?;
        let narrower = std::mem::replace(self, wider);
        // The old description stays open while a thread waits through it.
        ofd::unlock(&narrower.fd, FileRange::ALL)
    }
}

/// Opens the file of `handle` again for [`super::Locks::set`], with no more access than `handle` has, except that a
/// writable file is also opened for reading if possible: the same owner may want shared locks later.
pub(crate) fn open_for_locks(proc_fds: &ProcFds, handle: &OwnedFd) -> Result<OwnedFd, Errno> {
    let modes: &[OFlags] = match rustix::fs::fcntl_getfl(handle)? & OFlags::RWMODE {
        OFlags::RDONLY => &[OFlags::RDONLY],
        OFlags::WRONLY => &[OFlags::RDWR, OFlags::WRONLY],
        // Permissions and mounts can change while a file is open; the remaining access is enough for some locks.
        _ => &[OFlags::RDWR, OFlags::RDONLY, OFlags::WRONLY],
    };
    let mut outcome = Err(Errno::BADF);
    for &mode in modes {
        outcome = proc_fds.reopen(handle, mode | OFlags::NONBLOCK | OFlags::NOCTTY);
        // After any other error, a description with less access would only hide the cause.
        if !matches!(outcome, Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY)) {
            break;
        }
    }
    outcome
}
