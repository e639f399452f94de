//! Passes the holders of POSIX locks on. To another process of this host go their descriptors, which hold the locks. To
//! another host goes a description only: this session lets go of the locks, and the other one takes them.

use std::{
    collections::VecDeque,
    os::fd::OwnedFd,
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::io::Errno;
use transom_wire::{NodeId, ids::LockOwner};

use super::{
    LockingFile, Locks,
    holder::Holder,
    open_file::OpenFiles,
    owners::Owners,
    ranges::Ranges,
    record::{Entry, Record},
};
use crate::{
    migration::{LockHolder, LockedRange},
    sysfd::ofd::{self, FileRange, LockKind},
};

/// How long one try to take locks back may take: a caller holds up others meanwhile.
const TRY_MAX: Duration = Duration::from_millis(10);
/// How often [`Locks::take_back_all`] tries.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// A lock that was let go of, and has to be taken back.
#[derive(Debug)]
pub(super) struct LetGo {
    inode: NodeId,
    range: LockedRange,
    fd: Arc<OwnedFd>,
}

impl Locks {
    /// Returns all holders with their inodes and their descriptors. `inode` of a holder is 0, and its `files` are
    /// [`LockingFile::id`]s.
    pub(crate) fn holders(&self) -> Vec<(NodeId, LockHolder, Arc<OwnedFd>)> {
        self.owners.holders()
    }

    /// Takes the locks of a holder of another host through `fd`, and adds the holder.
    ///
    /// # Errors
    ///
    /// EAGAIN if somebody else has one of the locks, EBADF if `fd` does not allow one of them; those of
    /// [`Locks::adopt`].
    pub(crate) fn take<'a>(
        &self,
        inode: NodeId,
        holder: &LockHolder,
        fd: OwnedFd,
        files: impl Iterator<Item = &'a LockingFile>,
    ) -> Result<(), Errno> {
        // The source may have exceeded the limits by as many locks as it served requests at once.
        self.owners.check_room(inode)?;
        if holder.ranges.len() > 2 * self.owners.ranges_per_inode() {
            return Err(Errno::NOLCK);
        }
        for range in &holder.ranges {
            let kind = if range.is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
            ofd::try_lock(&fd, FileRange::new(range.start, range.end)?, kind)?;
        }
        self.adopt(inode, holder, fd, files)
    }

    /// Unlocks everything until [`Locks::take_back`], since another session is about to take it.
    pub(crate) fn let_go(&self) {
        let mut let_go = self.lock_let_go();
        let_go.clear();
        for (inode, described, fd) in self.holders() {
            // Closing the descriptor unlocks too, at the end of the session.
            if let Err(error) = ofd::unlock(&fd, FileRange::ALL) {
                tracing::warn!(%error, "a lock is not let go: the destination cannot take it");
            }
            let_go.extend(described.ranges.into_iter().map(|range| LetGo { inode, range, fd: Arc::clone(&fd) }));
        }
        self.is_let_go.store(true, Ordering::Release);
    }

    /// Returns whether something was let go and not taken back.
    pub(crate) fn has_let_go(&self) -> bool {
        self.is_let_go.load(Ordering::Acquire)
    }

    /// Tries to take back what was let go, because the session goes on here. Returns whether that is done; until then
    /// no request may be served. Each try takes little time, and never waits for a lock. Cheap if nothing was let go.
    ///
    /// A destination that has failed lets its locks go when it sees that its front end has left: until `until`, a lock
    /// that somebody else has is tried again by the next call. Afterwards it is lost to the guest, which the log says.
    pub(crate) fn take_back(&self, until: Instant) -> bool {
        if !self.has_let_go() {
            return true;
        }
        let mut let_go = self.lock_let_go();
        let begun = Instant::now();
        for _ in 0..let_go.len() {
            let Some(lock) = let_go.pop_front() else { break };
            match lock.try_again() {
                Err(Errno::AGAIN) if begun < until => let_go.push_back(lock),
                Err(error) => lock.is_lost(error),
                Ok(()) => {}
            }
            if begun.elapsed() >= TRY_MAX {
                break;
            }
        }
        if let_go.is_empty() {
            self.is_let_go.store(false, Ordering::Release);
        }
        let_go.is_empty()
    }

    /// As [`Locks::take_back`], and returns when it is done. Blocks until `until` if somebody else has a lock.
    pub(crate) fn take_back_all(&self, until: Instant) {
        while !self.take_back(until) {
            thread::sleep(TRY_EVERY);
        }
    }

    /// Forgets what was let go: the session has ended.
    pub(super) fn forget_let_go(&self) {
        let mut let_go = self.lock_let_go();
        let_go.clear();
        self.is_let_go.store(false, Ordering::Release);
    }

    fn lock_let_go(&self) -> MutexGuard<'_, VecDeque<LetGo>> {
        self.let_go.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a holder of another process of this host. `fd` holds its locks, and it has requested them through `files`.
    ///
    /// # Errors
    ///
    /// EINVAL for an invalid range, or if the holder is there already; ENOLCK beyond the limits.
    pub(crate) fn adopt<'a>(
        &self,
        inode: NodeId,
        holder: &LockHolder,
        fd: OwnedFd,
        files: impl Iterator<Item = &'a LockingFile>,
    ) -> Result<(), Errno> {
        let owner = LockOwner(holder.owner.into());
        let mut open_files = OpenFiles::default();
        for file in files {
            open_files.add(file)?;
        }
        let mut locks = Ranges::default();
        for range in &holder.ranges {
            let kind = if range.is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
            locks.set(FileRange::new(range.start, range.end)?, kind);
        }
        let entry = Entry {
            holder: Arc::new(Holder::new(inode, owner, fd)?),
            open_files,
            locks,
            has_locked: holder.has_locked,
            pid: holder.pid,
            has_several_pids: holder.has_several_pids,
        };
        self.owners.adopt(entry)
    }
}

impl LetGo {
    fn try_again(&self) -> Result<(), Errno> {
        let kind = if self.range.is_exclusive { LockKind::Exclusive } else { LockKind::Shared };
        ofd::try_lock(&self.fd, FileRange::new(self.range.start, self.range.end)?, kind)
    }

    fn is_lost(&self, error: Errno) {
        let (inode, start, end) = (self.inode.0, self.range.start, self.range.end);
        tracing::error!(
            %error, inode, start, end,
            "the guest has lost a lock: somebody on the host took it while the migration was tried"
        );
    }
}

impl Owners {
    fn holders(&self) -> Vec<(NodeId, LockHolder, Arc<OwnedFd>)> {
        // A holder's description is locked before the record, so not within it.
        let entries: Vec<_> = {
            let record = &self.lock().record;
            let entries = record.inodes.values().flat_map(|inode| inode.owners.values());
            entries.map(|entry| (Arc::clone(&entry.holder), described(entry))).collect()
        };
        entries
            .into_iter()
            .map(|(holder, described)| (holder.inode, described, Arc::clone(&holder.description().fd)))
            .collect()
    }

    fn adopt(&self, entry: Entry) -> Result<(), Errno> {
        let (inode, owner) = (entry.holder.inode, entry.holder.owner);
        let record = &mut self.lock().record;
        self.check_owners(record, inode)?;
        if record.entry(inode, owner).is_some() {
            return Err(Errno::INVAL);
        }
        record.add(inode, owner, entry);
        self.count.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Record {
    fn add(&mut self, inode: NodeId, owner: LockOwner, entry: Entry) {
        let count = entry.locks.len();
        let of_inode = self.inodes.entry(inode).or_default();
        of_inode.ranges += count;
        of_inode.owners.insert(owner, entry);
        self.ranges += count;
    }
}

fn described(entry: &Entry) -> LockHolder {
    let range = |(range, kind): (FileRange, LockKind)| LockedRange {
        start: range.start(),
        end: range.end(),
        is_exclusive: kind == LockKind::Exclusive,
    };
    LockHolder {
        inode: 0,
        owner: entry.holder.owner.0.into(),
        pid: entry.pid,
        has_several_pids: entry.has_several_pids,
        has_locked: entry.has_locked,
        files: entry.open_files.ids().to_vec(),
        ranges: entry.locks.iter().map(range).collect(),
    }
}
