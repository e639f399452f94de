//! Who holds POSIX locks: an open file description for each inode and lock owner.
//!
//! A description lives while its owner may hold locks: from the first success until FLUSH, forget, or an unlock of the
//! whole file. One without a success is closed as soon as nobody uses it. Descriptors are closed outside of the mutex.

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use rustix::io::Errno;
use transom_wire::{NodeId, ids::LockOwner};

use crate::sysfd::ofd::{self, FileRange};

/// How many descriptors a guest can hold through locks; beyond it, a lock answers ENOLCK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Owners, over all inodes.
    pub owners: usize,
    /// Owners of one inode.
    pub owners_per_inode: usize,
}

impl Default for Limits {
    /// 4096 in all, which leaves most of a usual limit of descriptors to inodes; 1024 for one inode, so that a file that
    /// everybody locks does not take the places of all others.
    fn default() -> Self {
        Self { owners: 4096, owners_per_inode: 1024 }
    }
}

/// All descriptions that hold POSIX locks.
#[derive(Debug)]
pub(super) struct Owners {
    limits: Limits,
    inodes: Mutex<Inodes>,
    /// Descriptions in `inodes`. Changed under the mutex, read without it.
    count: AtomicUsize,
}

type Inodes = HashMap<NodeId, HashMap<LockOwner, Arc<OwnerFile>>>;

/// A description with the locks of one owner.
#[derive(Debug)]
pub(super) struct OwnerFile {
    fd: OwnedFd,
    /// A lock was given once; whether one is still there, only the kernel knows. Read under the mutex.
    has_locked: AtomicBool,
    /// Its owner has ended: a lock that a waiter gets now is given back. Set and read under the mutex.
    is_released: AtomicBool,
}

impl AsFd for OwnerFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Owners {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, inodes: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// The description of `owner` on `inode`, if it has one.
    pub(super) fn find(&self, inode: NodeId, owner: LockOwner) -> Option<Arc<OwnerFile>> {
        if self.count() == 0 {
            return None;
        }
        self.lock().get(&inode)?.get(&owner).cloned()
    }

    /// Calls `act` with the description of `owner` on `inode`, after `open` where there is none.
    ///
    /// Errors: ENOLCK beyond the limits, EBADF where the owner ended while `act` waited; those of `open` and `act`.
    pub(super) fn with(
        &self,
        inode: NodeId,
        owner: LockOwner,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let file = match self.find(inode, owner) {
            Some(file) => file,
            None => self.insert(inode, owner, open)?,
        };
        let outcome = act(file.as_fd());
        if outcome.is_ok() {
            file.has_locked.store(true, Ordering::Relaxed);
        }
        if self.settle(inode, owner, &file) == Fate::Released && outcome.is_ok() {
            // As Linux does where the file was closed while a thread waited for the lock.
            ofd::unlock(&*file, FileRange::ALL)?;
            return Err(Errno::BADF);
        }
        outcome
    }

    /// Takes the description of `owner` on `inode` away and gives its locks back.
    pub(super) fn release(&self, inode: NodeId, owner: LockOwner) {
        self.take(|inodes| {
            let of_inode = inodes.get_mut(&inode)?;
            let file = of_inode.remove(&owner)?;
            if of_inode.is_empty() {
                inodes.remove(&inode);
            }
            Some(vec![file])
        });
    }

    /// Takes all descriptions of `inode` away and gives their locks back.
    pub(super) fn release_inode(&self, inode: NodeId) {
        self.take(|inodes| Some(inodes.remove(&inode)?.into_values().collect()));
    }

    /// Takes all descriptions away and gives their locks back.
    pub(super) fn release_all(&self) {
        self.take(|inodes| Some(std::mem::take(inodes).into_values().flat_map(HashMap::into_values).collect()));
    }

    /// Descriptions with an owner.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Opens a description for `owner`; or finds one that another thread has opened meanwhile.
    fn insert(
        &self,
        inode: NodeId,
        owner: LockOwner,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Arc<OwnerFile>, Errno> {
        self.check_limits(&self.lock(), inode)?;
        // Opening may block, and so happens without the mutex. Declared before the guard, what is not used is closed
        // after it is dropped.
        let file = Arc::new(OwnerFile {
            fd: open()?,
            has_locked: AtomicBool::new(false),
            is_released: AtomicBool::new(false),
        });
        let mut inodes = self.lock();
        if let Some(present) = inodes.get(&inode).and_then(|of_inode| of_inode.get(&owner)) {
            return Ok(present.clone());
        }
        self.check_limits(&inodes, inode)?;
        inodes.entry(inode).or_default().insert(owner, file.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(file)
    }

    fn check_limits(&self, inodes: &Inodes, inode: NodeId) -> Result<(), Errno> {
        let of_inode = inodes.get(&inode).map_or(0, HashMap::len);
        if self.count() >= self.limits.owners || of_inode >= self.limits.owners_per_inode {
            return Err(Errno::NOLCK);
        }
        Ok(())
    }

    /// Forgets `file` where it was opened for a lock that was not given, and says whether its owner has ended.
    fn settle(&self, inode: NodeId, owner: LockOwner, file: &Arc<OwnerFile>) -> Fate {
        let mut inodes = self.lock();
        if file.is_released.load(Ordering::Relaxed) {
            return Fate::Released;
        }
        // Clones are made under the mutex: with two, one is the table's and one the caller's.
        if !file.has_locked.load(Ordering::Relaxed)
            && Arc::strong_count(file) == 2
            && let Some(of_inode) = inodes.get_mut(&inode)
        {
            of_inode.remove(&owner);
            if of_inode.is_empty() {
                inodes.remove(&inode);
            }
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Fate::Alive
    }

    /// Ends the owners that `choose` takes out of the table.
    fn take(&self, choose: impl FnOnce(&mut Inodes) -> Option<Vec<Arc<OwnerFile>>>) {
        if self.count() == 0 {
            return;
        }
        let files = {
            let mut inodes = self.lock();
            let files = choose(&mut inodes).unwrap_or_default();
            files.iter().for_each(|file| file.is_released.store(true, Ordering::Relaxed));
            self.count.fetch_sub(files.len(), Ordering::Relaxed);
            files
        };
        for file in files {
            // The last reference closes the description, and its locks go with it. A thread that waits has another one;
            // what it gets from now on, it gives back itself, since it finds `is_released`.
            if Arc::strong_count(&file) > 1
                && let Err(errno) = ofd::unlock(&*file, FileRange::ALL)
            {
                tracing::warn!(%errno, "locks of an owner that has ended stay until its last waiter leaves");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inodes> {
        self.inodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of an owner while a thread used its description.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Alive,
    Released,
}
