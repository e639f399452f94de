//! The holders of POSIX locks, one for each inode and lock owner, and a record of their locks.
//!
//! The host's kernel decides who gets a lock. The record answers what the kernel cannot: who holds a conflicting lock
//! ([`Owners::holder_of`]), who waits for whom ([`super::waits`]), and the number of locks.
//!
//! A holder lives while its owner may hold locks: from the first success until FLUSH, RELEASE, forget, or an unlock of
//! the whole file. A holder without a success is closed as soon as it is unused. Descriptors are closed outside of the
//! mutex.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::io::Errno;
use transom_wire::{NodeId, ids::LockOwner};

use super::{
    Limits, LockingFile, Wanted,
    holder::{Description, Holder},
    open_file::OpenFiles,
    ranges::Ranges,
    record::{Entry, Record},
    waits::Waits,
};
use crate::sysfd::ofd::{self, FileRange, LockKind};

/// All holders of POSIX locks, and the waits for them.
#[derive(Debug)]
pub(super) struct Owners {
    limits: Limits,
    /// Never held across a system call.
    state: Mutex<State>,
    /// Number of holders in the record. Changed under its mutex, read without.
    pub(super) count: AtomicUsize,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) record: Record,
    waits: Waits,
}

impl Owners {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, state: Mutex::default(), count: AtomicUsize::new(0) }
    }

    /// Returns the limit on locked ranges of one inode.
    pub(super) fn ranges_per_inode(&self) -> usize {
        self.limits.ranges_per_inode
    }

    /// Returns the holder for `owner` on `inode`, if there is one.
    pub(super) fn find(&self, inode: NodeId, owner: LockOwner) -> Option<Arc<Holder>> {
        if self.count() == 0 {
            return None;
        }
        Some(Arc::clone(&self.lock().record.entry(inode, owner)?.holder))
    }

    /// Returns the holder for `wanted`, created with `open` if necessary, and records that it uses `file`.
    ///
    /// # Errors
    ///
    /// ENOLCK beyond the limits, EBADF if the open file was released; the errors of `open`.
    pub(super) fn enter(
        &self,
        wanted: &Wanted,
        file: &LockingFile,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<Arc<Holder>, Errno> {
        {
            let record = &mut self.lock().record;
            if let Some(holder) = record.meet(wanted, file) {
                return holder;
            }
            self.check_owners(record, wanted.inode)?;
        }
        // Opening may block, so it happens without the mutex. Declared before the guard, so that an unused holder is
        // closed after the mutex is unlocked.
        let holder = Arc::new(Holder::new(wanted.inode, wanted.owner, open()?)?);
        let record = &mut self.lock().record;
        if let Some(present) = record.meet(wanted, file) {
            return present;
        }
        self.check_owners(record, wanted.inode)?;
        let mut open_files = OpenFiles::default();
        open_files.add(file)?;
        let entry = Entry {
            holder: Arc::clone(&holder),
            open_files,
            locks: Ranges::default(),
            has_locked: false,
            pid: wanted.pid,
            has_several_pids: false,
        };
        record.inodes.entry(wanted.inode).or_default().owners.insert(wanted.owner, entry);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(holder)
    }

    /// Takes a lock without waiting.
    ///
    /// # Errors
    ///
    /// EAGAIN if another lock conflicts, EBADF if the holder has ended or `open` does not get the access that the lock
    /// needs; the errors of `open`.
    pub(super) fn try_lock(
        &self,
        holder: &Holder,
        wanted: &Wanted,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        let mut description = holder.description();
        if !description.allows(wanted.kind) {
            self.widen(holder, &mut description, wanted.kind, open)?;
        }
        ofd::try_lock(&description.fd, wanted.range, wanted.kind)?;
        let is_recorded = self.lock().record.change(holder, |entry| {
            entry.locks.set(wanted.range, wanted.kind);
            entry.has_locked = true;
        });
        if !is_recorded {
            // As Linux does if the file was closed while a thread waited for the lock.
            ofd::unlock(&description.fd, FileRange::ALL)?;
            return Err(Errno::BADF);
        }
        Ok(())
    }

    /// Unlocks `range`. Errors: ENOLCK if that would split a lock and the limit is reached.
    pub(super) fn unlock(&self, inode: NodeId, owner: LockOwner, range: FileRange) -> Result<(), Errno> {
        let Some(holder) = self.find(inode, owner) else { return Ok(()) };
        let description = holder.description();
        if self.lock().record.entry_of(&holder).is_some_and(|entry| entry.locks.splits(range)) {
            self.check_room(inode)?;
        }
        ofd::unlock(&description.fd, range)?;
        self.lock().record.change(&holder, |entry| {
            entry.locks.clear(range);
            // Most owners that unlock a whole file are done with it; others lock and unlock the same bytes repeatedly.
            entry.has_locked &= !range.is_all();
        });
        drop(description);
        if range.is_all() {
            self.settle(&holder);
        }
        Ok(())
    }

    /// Removes `holder` if it was created for a lock that was not granted.
    pub(super) fn settle(&self, holder: &Arc<Holder>) {
        let record = &mut self.lock().record;
        // Clones are made under the mutex. With a count of two, one is the table's and one the caller's.
        let is_idle = record.entry_of(holder).is_some_and(|entry| !entry.has_locked) && Arc::strong_count(holder) == 2;
        if is_idle {
            // The caller's clone keeps its descriptor open.
            self.forget(record.remove(holder.inode, holder.owner).as_slice());
        }
    }

    /// Returns the guest's process that holds the lock which the kernel reported as conflicting with `wanted`, or
    /// `None` if the lock is not held by this session.
    pub(super) fn holder_of(&self, wanted: &Wanted, range: FileRange, kind: LockKind) -> Option<u32> {
        let record = &self.lock().record;
        let others = || record.inodes.get(&wanted.inode).into_iter().flat_map(|inode| inode.others(wanted.owner));
        let at = |entry: &Entry| entry.locks.at(range.start());
        let exact = others().find(|(_, entry)| at(entry) == Some((range, kind)));
        // Another request may have changed the lock since; the owner of its first byte is as good an answer.
        let found = exact.or_else(|| others().find(|(_, entry)| at(entry).is_some_and(|(_, held)| held == kind)));
        found.map(|(_, entry)| entry.pid)
    }

    /// Records that `holder` waits, until the result is dropped.
    ///
    /// # Errors
    ///
    /// EDEADLK if that closes a cycle, EBADF if the holder has ended.
    pub(super) fn begin_wait(&self, holder: &Holder, wanted: &Wanted) -> Result<NotedWait<'_>, Errno> {
        let State { record, waits } = &mut *self.lock();
        if record.entry_of(holder).is_none() {
            return Err(Errno::BADF);
        }
        Ok(NotedWait { owners: self, id: waits.begin(wanted, record)? })
    }

    /// Ends the locks of `owner` on `inode`.
    pub(super) fn release(&self, inode: NodeId, owner: LockOwner) {
        if self.count() == 0 {
            return;
        }
        self.take(|record| record.remove(inode, owner));
    }

    /// Ends the locks of owners that have locked `inode` through `file` only.
    pub(super) fn release_file(&self, inode: NodeId, file: &LockingFile) {
        self.take(|record| {
            let has_asked = file.release();
            let Some(of_inode) = record.inodes.get_mut(&inode).filter(|_| has_asked) else { return Vec::new() };
            let owners = of_inode.owners.iter_mut();
            let ended: Vec<_> =
                owners.filter_map(|(owner, entry)| entry.open_files.remove(file).then_some(*owner)).collect();
            ended.into_iter().flat_map(|owner| record.remove(inode, owner)).collect()
        });
    }

    /// Ends all locks on `inode`.
    pub(super) fn release_inode(&self, inode: NodeId) {
        if self.count() == 0 {
            return;
        }
        self.take(|record| {
            let Some(inode) = record.inodes.remove(&inode) else { return Vec::new() };
            record.ranges -= inode.ranges;
            inode.owners.into_values().map(|entry| entry.holder).collect()
        });
    }

    /// Ends all locks.
    pub(super) fn release_all(&self) {
        self.take(|record| {
            record.ranges = 0;
            let inodes = std::mem::take(&mut record.inodes).into_values();
            inodes.flat_map(|inode| inode.owners.into_values().map(|entry| entry.holder)).collect()
        });
    }

    /// Returns the number of holders.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn widen(
        &self,
        holder: &Holder,
        description: &mut Description,
        kind: LockKind,
        open: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> Result<(), Errno> {
        // The locks cannot change meanwhile, since the caller holds the description.
        let mut locks = Ranges::default();
        if let Some(entry) = self.lock().record.entry_of(holder) {
            entry.locks.iter().for_each(|(range, kind)| locks.set(range, kind));
        }
        description.widen(&locks, kind, open)
    }

    /// Checks the limits on owners. Errors: ENOLCK.
    pub(super) fn check_owners(&self, record: &Record, inode: NodeId) -> Result<(), Errno> {
        let of_inode = record.inodes.get(&inode).map_or(0, |inode| inode.owners.len());
        let has_room = self.count() < self.limits.owners && of_inode < self.limits.owners_per_inode;
        if has_room { Ok(()) } else { Err(Errno::NOLCK) }
    }

    /// Checks that another lock on `inode` may be taken. Each request served at the same time may take two more.
    ///
    /// # Errors
    ///
    /// ENOLCK.
    pub(super) fn check_room(&self, inode: NodeId) -> Result<(), Errno> {
        let record = &self.lock().record;
        let of_inode = record.inodes.get(&inode).map_or(0, |inode| inode.ranges);
        let has_room = record.ranges < self.limits.ranges && of_inode < self.limits.ranges_per_inode;
        if has_room { Ok(()) } else { Err(Errno::NOLCK) }
    }

    /// Ends the holders that `choose` removes from the record.
    fn take(&self, choose: impl FnOnce(&mut Record) -> Vec<Arc<Holder>>) {
        let holders = {
            let record = &mut self.lock().record;
            let holders = choose(record);
            self.forget(&holders);
            holders
        };
        for holder in holders {
            // Closing the description is not enough: a waiting thread also has it open, and so has a process that is
            // just being started. A lock granted to a waiter from now on is released by the waiter itself, since its
            // holder is no longer in the table.
            if let Err(errno) = ofd::unlock(&holder.description().fd, FileRange::ALL) {
                tracing::warn!(%errno, "locks of an ended owner stay until its last waiter leaves");
            }
        }
    }

    fn forget(&self, holders: &[Arc<Holder>]) {
        self.count.fetch_sub(holders.len(), Ordering::Relaxed);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A wait that is visible to deadlock detection until it is dropped.
pub(super) struct NotedWait<'a> {
    owners: &'a Owners,
    id: u64,
}

impl Drop for NotedWait<'_> {
    fn drop(&mut self) {
        self.owners.lock().waits.end(self.id);
    }
}
