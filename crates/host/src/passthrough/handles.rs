//! Files and directory streams that the guest has open.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use rustix::fs::fstatfs;
use transom_wire::{Handle, NodeId};

use super::{
    buffered::Buffered,
    descriptors::{Descriptors, OpenFileSlot},
    dir_stream::DirStream,
    slab::{self, Slab},
};
use crate::{Errno, locks::LockingFile};

/// Shards, so that workers seldom meet at one lock.
const SHARD_COUNT: u32 = 8;

/// A file that is open.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    pub(super) nodeid: NodeId,
    /// Says when POSIX locks end that were taken through this file.
    pub(super) locking: LockingFile,
    /// The host's file system has no reads that refuse to wait: they are not tried again.
    pub(super) waits_to_read: AtomicBool,
    /// The host's file system has no writes that refuse to wait: they are not tried again.
    pub(super) waits_to_write: AtomicBool,
    is_in_memory: OnceLock<bool>,
    /// Set with the first request that writes pages of the guest's cache; `None` where `fd` serves these too.
    pub(super) buffered: OnceLock<Option<Buffered>>,
}

impl OpenFile {
    /// Whether the file system has no disk behind it, so that there is nothing to wait for in fsync(2).
    pub(super) fn is_in_memory(&self) -> bool {
        const TMPFS: u32 = 0x0102_1994;
        const RAMFS: u32 = 0x8584_58f6;
        let find_out = || fstatfs(&self.fd).is_ok_and(|stat| matches!(stat.f_type as u32, TMPFS | RAMFS));
        *self.is_in_memory.get_or_init(find_out)
    }
}

/// An open file without a handle counts until this is dropped.
#[derive(Debug)]
pub(super) struct HeldFile(Arc<Descriptors>);

impl Drop for HeldFile {
    fn drop(&mut self) {
        self.0.close_file();
    }
}

/// What a handle names.
#[derive(Debug, Clone)]
enum Open {
    File(Arc<OpenFile>),
    Directory(Arc<DirStream>),
}

/// Everything that is open, by handle. Locks: one for each shard, for a look or a change, never across a system call.
#[derive(Debug)]
pub(super) struct Handles {
    shards: Box<[Mutex<Slab<Open>>]>,
    next_shard: AtomicU32,
    descriptors: Arc<Descriptors>,
}

impl Handles {
    pub(super) fn new(descriptors: Arc<Descriptors>) -> Self {
        let shards = (0..SHARD_COUNT).map(|shard| Mutex::new(Slab::new(shard, SHARD_COUNT))).collect();
        Self { shards, next_shard: AtomicU32::new(0), descriptors }
    }

    /// The descriptors that handles and inodes count against.
    pub(super) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Asks for room before a file is opened. Errors: ENFILE where as much is open as may be.
    pub(super) fn reserve(&self) -> Result<OpenFileSlot<'_>, Errno> {
        self.descriptors.open_file()
    }

    /// Counts one more open file until what is returned is dropped. Errors: as [`Handles::reserve`].
    pub(super) fn hold(&self) -> Result<HeldFile, Errno> {
        self.reserve()?.keep();
        Ok(HeldFile(Arc::clone(&self.descriptors)))
    }

    /// Gives an open file its handle.
    pub(super) fn add_file(&self, slot: OpenFileSlot<'_>, nodeid: NodeId, fd: OwnedFd) -> Result<Handle, Errno> {
        let file = OpenFile {
            fd,
            nodeid,
            locking: LockingFile::default(),
            waits_to_read: AtomicBool::default(),
            waits_to_write: AtomicBool::default(),
            is_in_memory: OnceLock::new(),
            buffered: OnceLock::new(),
        };
        self.add(slot, Open::File(Arc::new(file)))
    }

    /// Gives an open directory its handle.
    pub(super) fn add_directory(&self, slot: OpenFileSlot<'_>, stream: DirStream) -> Result<Handle, Errno> {
        self.add(slot, Open::Directory(Arc::new(stream)))
    }

    /// The open file of that handle. Errors: EBADF.
    pub(super) fn file(&self, fh: Handle) -> Result<Arc<OpenFile>, Errno> {
        match self.shard(fh).get(fh.0) {
            Some(Open::File(file)) => Ok(Arc::clone(file)),
            _ => Err(Errno::BADF),
        }
    }

    /// The open directory of that handle. Errors: EBADF.
    pub(super) fn directory(&self, fh: Handle) -> Result<Arc<DirStream>, Errno> {
        match self.shard(fh).get(fh.0) {
            Some(Open::Directory(stream)) => Ok(Arc::clone(stream)),
            _ => Err(Errno::BADF),
        }
    }

    /// Ends a handle; what is open is closed with its last user. A handle that is not there is ignored.
    pub(super) fn remove(&self, fh: Handle) {
        let removed = self.shard(fh).remove(fh.0);
        if removed.is_some() {
            self.descriptors.close_file();
        }
    }

    /// Ends all handles.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let removed = shard.lock().unwrap_or_else(PoisonError::into_inner).drain();
            removed.iter().for_each(|_| self.descriptors.close_file());
        }
    }

    fn add(&self, slot: OpenFileSlot<'_>, open: Open) -> Result<Handle, Errno> {
        let shard = self.next_shard.fetch_add(1, Relaxed) % SHARD_COUNT;
        let key = self.shards[shard as usize].lock().unwrap_or_else(PoisonError::into_inner).insert(open);
        // What did not get a key is closed here, without a lock.
        let key = key.map_err(|_| Errno::NFILE)?;
        slot.keep();
        Ok(Handle(key))
    }

    fn shard(&self, fh: Handle) -> MutexGuard<'_, Slab<Open>> {
        self.shards[slab::shard_of(fh.0, SHARD_COUNT)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
