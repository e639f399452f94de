//! The inodes that the guest knows, and how each is reached while few descriptors are open.
//!
//! [`Inodes::admit`] assigns an inode its nodeid, [`Inodes::get`] finds it again, [`Inodes::forget`] removes it. An
//! entry references its inode by handle or by path. Some entries also keep an `O_PATH` descriptor; [`Descriptors`]
//! limits how many stay open. [`open_descriptors`] keeps to the limits, [`shard`] chooses which to close, [`reopen`]
//! opens one again, [`pin`] protects those that are the last reference to their inode, [`capacity`] limits the number
//! of known inodes, [`observed`] has changes in known directories observed. Nodeids are keys of a
//! [`Slab`](super::slab::Slab) and are never reused.
//!
//! Locks: one for each shard, never two at a time, and no system call under any of them, not even close(2). That of
//! [`observed`] is taken before one of a shard.

mod by_handle;
mod capacity;
mod filesystems;
mod identity;
mod insert_open;
mod known;
mod migrated;
mod observed;
mod open_descriptors;
mod path_fd;
mod pin;
mod release;
mod reopen;
mod shard;
mod spare_paths;

pub(crate) use capacity::Capacity;
pub(crate) use filesystems::FsId;
pub(crate) use identity::{Identity, InodeKey, file_type};

pub use observed::ObserveDirectories;
pub(super) use observed::reserve as reserve_for_observed;
pub(crate) use path_fd::Fd;

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
};

use hashbrown::DefaultHashBuilder;
use rustix::fs::{AtFlags, FileType, Statx};
use transom_wire::NodeId;

use super::{config::FileHandles, descriptors::Descriptors, slab};
use crate::{
    Errno,
    sysfd::{ProcFds, stat},
};
use by_handle::ByHandle;
use filesystems::{Filesystems, Kept};
use identity::Hold;
use insert_open::Inserted;
use known::Forecast;
use observed::Observed;
use path_fd::OpenClock;
use shard::{Entry, Shard, hash};
use spare_paths::SparePaths;

/// Number of shards, enough that workers seldom contend for one lock.
const SHARD_COUNT: u32 = 32;

/// Descriptors that are kept although a handle would do, of files and of directories, so that the request after a
/// LOOKUP finds the inode open, and the next LOOKUP of its name is one system call.
///
/// A file that the host deletes keeps its blocks while a descriptor is open, so those of files that are not used are
/// closed after seconds ([`Inodes::close_unused`]). Each keeps an inode and a name in the host's memory, about 1.5 KiB.
const SPARE_MAX: usize = 8192;

/// All inodes that the guest knows.
#[derive(Debug)]
pub(super) struct Inodes {
    root: Inode,
    root_identity: Identity,
    shards: Box<[Mutex<Shard>]>,
    hasher: DefaultHashBuilder,
    filesystems: Filesystems,
    proc_fds: Arc<ProcFds>,
    descriptors: Arc<Descriptors>,
    /// Number of descriptors that could be closed, by class.
    spare: [AtomicUsize; 2],
    spare_max: [usize; 2],
    /// The shard from which the next descriptor is closed.
    next_victim: AtomicUsize,
    capacity: Capacity,
    spare_paths: SparePaths,
    by_handle: ByHandle,
    /// `None` if the whole file system is observed, or nothing.
    observed: Option<Observed>,
    open_clock: OpenClock,
    forecast: Forecast,
    /// Whether files that are created are removed soon.
    removals: Forecast,
}

/// An inode with an open descriptor.
#[derive(Debug, Clone)]
pub(super) struct Inode {
    /// `O_PATH`; stays open while this value lives.
    pub(super) fd: Fd,
    pub(super) file_type: FileType,
    pub(super) fs: FsId,
    ino: u64,
}

/// The descriptor of an inode that is about to be admitted.
#[derive(Debug)]
pub(super) enum InodeFd<'a> {
    /// `O_PATH`, and may be kept.
    Owned(OwnedFd),
    /// Owned by somebody else.
    Borrowed(BorrowedFd<'a>),
}

impl AsFd for InodeFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Owned(fd) => fd.as_fd(),
            Self::Borrowed(fd) => *fd,
        }
    }
}

impl Inodes {
    /// Creates the set of inodes below `root`, which is `O_PATH`. Errors: EOPNOTSUPP if handles are mandatory and not
    /// available.
    pub(super) fn new(
        root: OwnedFd,
        wanted: FileHandles,
        proc_fds: Arc<ProcFds>,
        descriptors: Arc<Descriptors>,
        capacity: Capacity,
    ) -> Result<Self, Errno> {
        let filesystems = Filesystems::new(wanted);
        let stat = stat::statx(&root, AtFlags::empty(), stat::IDENTITY)?;
        let fs = filesystems.find_or_add(&stat);
        let file_type = file_type(&stat);
        filesystems.keep(fs, &root, file_type, &proc_fds, &descriptors)?;
        // Handles do not need descriptors. Paths do, so keep as many as the limit allows.
        let spare_max = if filesystems.opens_handles(fs) {
            let limit = descriptors.limit();
            [SPARE_MAX.min(limit / 2), SPARE_MAX.min(limit / 8)]
        } else {
            [usize::MAX, usize::MAX]
        };
        let hasher = DefaultHashBuilder::default();
        let shard = |at| Mutex::new(Shard::new(at, SHARD_COUNT, hasher.clone()));
        let open_clock = OpenClock::default();
        Ok(Self {
            root: Inode { fd: open_clock.path_fd(root), file_type, fs, ino: stat.stx_ino },
            root_identity: Identity::new(fs, &stat),
            shards: (0..SHARD_COUNT).map(shard).collect(),
            hasher,
            filesystems,
            proc_fds,
            descriptors,
            spare: Default::default(),
            spare_max,
            next_victim: AtomicUsize::new(0),
            capacity,
            spare_paths: SparePaths::default(),
            by_handle: ByHandle::default(),
            observed: None,
            open_clock,
            forecast: Forecast::default(),
            removals: Forecast::of_unlikely(),
        })
    }

    /// Returns the number of inodes that the guest knows, not counting the root, and its limit.
    pub(super) fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// Checks that another inode may become known, before creating one that could not be returned to the guest.
    ///
    /// # Errors
    ///
    /// ENFILE. A concurrent creation may still take the last slot.
    pub(super) fn check_room(&self) -> Result<(), Errno> {
        self.capacity.check()
    }

    /// Returns the root of the share.
    pub(super) fn root(&self) -> &Inode {
        &self.root
    }

    /// Returns the root's inode number.
    pub(super) fn root_ino(&self) -> u64 {
        self.root_identity.ino
    }

    /// Returns the inode number of an inode that the guest knows.
    pub(super) fn ino(&self, nodeid: NodeId) -> Option<u64> {
        if nodeid == NodeId::ROOT {
            return Some(self.root_ino());
        }
        self.shard(nodeid).entries.get(nodeid.0).map(|entry| entry.identity.ino)
    }

    /// Counts one lookup of the inode that `name` in `parent` resolved to; returns its nodeid and its mount.
    ///
    /// `stat` has the fields of [`stat::IDENTITY`]. An empty `name` stands for a file without a name.
    ///
    /// # Errors
    ///
    /// ESTALE if `parent` is no longer known, ENFILE if the inode is new and the limit is reached.
    pub(super) fn admit(
        &self,
        parent: NodeId,
        name: &[u8],
        stat: &Statx,
        inode_fd: InodeFd<'_>,
    ) -> Result<(NodeId, FsId), Errno> {
        let fs = self.filesystems.find_or_add(stat);
        Ok((self.admit_on(fs, (parent, name), stat, inode_fd)?, fs))
    }

    /// As [`Inodes::admit`], for an inode that is on the mount `fs`, whichever its descriptor is on.
    fn admit_on(
        &self,
        fs: FsId,
        (parent, name): (NodeId, &[u8]),
        stat: &Statx,
        inode_fd: InodeFd<'_>,
    ) -> Result<NodeId, Errno> {
        let identity = Identity::new(fs, stat);
        if identity == self.root_identity {
            return Ok(NodeId::ROOT);
        }
        let shard = self.shard_of(&identity);
        let known = self.count_if_open(shard, &identity, parent, name);
        self.forecast.note(known.is_some());
        if let Some(nodeid) = known {
            return Ok(nodeid);
        }
        let inode_fd = match self.insert_open(shard, identity, (name, file_type(stat)), inode_fd)? {
            Inserted::As(nodeid) => return Ok(nodeid),
            Inserted::No(inode_fd) => inode_fd,
        };
        let kept = self.filesystems.keep(fs, &inode_fd, file_type(stat), &self.proc_fds, &self.descriptors);
        let hold = kept.and_then(|kept| match kept {
            Kept::Handle(handle) => Ok(Hold::Handle(handle)),
            Kept::Path(handle) => {
                self.add_child(parent)?;
                Ok(Hold::Path(self.spare_paths.path(parent, name, handle)))
            }
        });
        let hold = hold.inspect_err(|_| self.filesystems.remove_inode(fs, &self.descriptors))?;
        let spare = match inode_fd {
            InodeFd::Owned(fd) => Some(self.open_clock.path_fd(fd)),
            InodeFd::Borrowed(_) => None,
        };
        self.count_or_insert(shard, identity, file_type(stat), hold, spare)
    }

    /// Returns the inode, reopening its descriptor if necessary, in which case it blocks on the host's file system.
    ///
    /// # Errors
    ///
    /// ESTALE if the guest does not know the inode, or it no longer exists on the host.
    pub(super) fn get(&self, nodeid: NodeId) -> Result<Inode, Errno> {
        if nodeid == NodeId::ROOT {
            return Ok(self.root.clone());
        }
        let mut shard = self.shard(nodeid);
        let entry = shard.entries.get(nodeid.0).ok_or(Errno::STALE)?;
        let (file_type, Identity { fs, ino, .. }) = (entry.file_type, entry.identity);
        if let Some(fd) = shard.kept(nodeid.0) {
            return Ok(Inode { fd, file_type, fs, ino });
        }
        drop(shard);
        Ok(Inode { fd: self.reopen(nodeid)?, file_type, fs, ino })
    }

    /// Removes `count` lookups; returns true if these were the last.
    pub(super) fn forget(&self, nodeid: NodeId, count: u64) -> bool {
        if nodeid == NodeId::ROOT {
            return false;
        }
        let mut shard = self.shard(nodeid);
        let Some(entry) = shard.entries.get_mut(nodeid.0) else { return false };
        entry.lookups = entry.lookups.saturating_sub(count);
        let is_forgotten = entry.lookups == 0;
        let removed = shard.remove_unused(nodeid.0);
        drop(shard);
        self.bury(removed);
        is_forgotten
    }

    /// Forgets all inodes but the root.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let entries = lock(shard).drain();
            for entry in entries {
                self.release(&entry);
            }
        }
    }

    /// Counts a lookup of an inode whose descriptor is kept, which proves that it is the same inode.
    fn count_if_open(&self, shard: &Mutex<Shard>, identity: &Identity, parent: NodeId, name: &[u8]) -> Option<NodeId> {
        let mut shard = lock(shard);
        let key = shard.find(identity, None)?;
        let entry = shard.entries.get_mut(key)?;
        if let Hold::Path(path) = &entry.hold
            && (path.parent != parent || *path.name != *name)
        {
            return None;
        }
        entry.lookups += 1;
        shard.kept(key);
        Some(NodeId(key))
    }

    /// Counts a lookup of the inode, inserting an entry if it has none.
    fn count_or_insert(
        &self,
        shard: &Mutex<Shard>,
        identity: Identity,
        file_type: FileType,
        hold: Hold,
        mut spare: Option<Fd>,
    ) -> Result<NodeId, Errno> {
        let mut shard = lock(shard);
        // Leftovers to release after unlocking: a second path to an inode, or the path of an entry that did not fit.
        let (key, rest) = match shard.find(&identity, Some(hold.handle())) {
            Some(key) => {
                let entry = shard.entries.get_mut(key).ok_or(Errno::STALE)?;
                entry.lookups += 1;
                let before = std::mem::replace(&mut entry.hold, hold);
                if entry.is_pinned && before.is_nameless() && spare.is_some() {
                    // It has a name now. Its descriptor may be on another daemon's mount, from which nothing is linked.
                    std::mem::swap(&mut entry.fd, &mut spare);
                    self.unpin_in(&mut shard, key);
                }
                (Ok(key), before)
            }
            None => {
                let indexed = self.by_handle.key(&hold);
                match self.insert(&mut shard, Entry::new(identity, file_type, hold)) {
                    Ok(key) => {
                        if let Some(handle) = indexed {
                            self.by_handle.insert(handle, NodeId(key));
                        }
                        self.keep_spare(&mut shard, key, spare);
                        drop(shard);
                        self.balance();
                        return Ok(NodeId(key));
                    }
                    Err((errno, entry)) => (Err(errno), entry.hold),
                }
            }
        };
        if let Ok(key) = key {
            self.keep_spare(&mut shard, key, spare);
        }
        drop(shard);
        self.filesystems.remove_inode(identity.fs, &self.descriptors);
        self.leave_parent(&rest);
        self.spare_paths.keep(rest);
        self.balance();
        key.map(NodeId)
    }

    /// Inserts an entry and returns its key, or the entry with an error. Errors: ENFILE, or ENOMEM if no key is left.
    fn insert(&self, shard: &mut Shard, entry: Entry) -> Result<u64, (Errno, Entry)> {
        if let Err(errno) = self.capacity.add() {
            return Err((errno, entry));
        }
        shard.insert(entry).map_err(|entry| {
            self.capacity.remove();
            (Errno::NOMEM, entry)
        })
    }

    /// Counts an inode whose path begins at `parent`.
    fn add_child(&self, parent: NodeId) -> Result<(), Errno> {
        if parent != NodeId::ROOT {
            self.shard(parent).entries.get_mut(parent.0).ok_or(Errno::STALE)?.children += 1;
        }
        Ok(())
    }

    fn shard(&self, nodeid: NodeId) -> MutexGuard<'_, Shard> {
        lock(&self.shards[slab::shard_of(nodeid.0, SHARD_COUNT)])
    }

    /// Returns the shard whose index holds the identity, and from whose keys the inode gets its nodeid.
    fn shard_of(&self, identity: &Identity) -> &Mutex<Shard> {
        // The low bits choose the slot within a shard's table.
        &self.shards[(hash(&self.hasher, identity) >> 40) as usize % self.shards.len()]
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
