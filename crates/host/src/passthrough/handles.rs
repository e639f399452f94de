//! Files and directory streams that the guest has open.

use std::{
    ops::Deref,
    os::fd::OwnedFd,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
};

use hashbrown::HashMap;
use rustix::fs::fstatfs;
use transom_wire::{Handle, NodeId};

use super::{
    descriptors::{Descriptors, OpenFileSlot},
    dir_stream::DirStream,
    slab::{self, Slab},
};
use crate::{Errno, locks::LockingFile};

/// Number of shards, enough that workers seldom contend for one lock.
const SHARD_COUNT: u32 = 8;

/// Closed files whose memory each shard keeps for reuse, about 100 bytes each: enough for guests that open and close a
/// few files at a time, without keeping what a burst of opens used.
const SPARE_FILES_MAX: usize = 8;

/// A file that is open.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) fd: OwnedFd,
    pub(super) nodeid: NodeId,
    /// Determines when POSIX locks taken through this file end.
    pub(super) locking: LockingFile,
    /// The host's file system has no non-blocking reads: do not try them again.
    pub(super) waits_to_read: AtomicBool,
    /// The host's file system has no non-blocking writes: do not try them again.
    pub(super) waits_to_write: AtomicBool,
    is_in_memory: OnceLock<bool>,
    /// Set by the first request that writes pages of the guest's cache; `None` if `fd` serves these too.
    pub(super) buffered: OnceLock<Option<Buffered>>,
}

impl OpenFile {
    fn new(fd: OwnedFd, nodeid: NodeId) -> Self {
        Self {
            fd,
            nodeid,
            locking: LockingFile::default(),
            waits_to_read: AtomicBool::default(),
            waits_to_write: AtomicBool::default(),
            is_in_memory: OnceLock::new(),
            buffered: OnceLock::new(),
        }
    }

    /// Returns whether the file system has no disk, so that fsync(2) never waits.
    pub(super) fn is_in_memory(&self) -> bool {
        const TMPFS: u32 = 0x0102_1994;
        const RAMFS: u32 = 0x8584_58f6;
        let find_out = || fstatfs(&self.fd).is_ok_and(|stat| matches!(stat.f_type as u32, TMPFS | RAMFS));
        *self.is_in_memory.get_or_init(find_out)
    }
}

/// A reference to an open file.
#[derive(Debug, Clone)]
pub(super) struct FileRef(FileMemory);

/// Memory for an open file; `None` while it is spare.
type FileMemory = Arc<Option<OpenFile>>;

impl Deref for FileRef {
    type Target = OpenFile;

    fn deref(&self) -> &OpenFile {
        Option::as_ref(&self.0).expect("the file is taken out only when nobody refers to it")
    }
}

/// Counts an open file that has no handle, until it is dropped.
#[derive(Debug)]
pub(super) struct HeldFile(Arc<Descriptors>);

impl Drop for HeldFile {
    fn drop(&mut self) {
        self.0.close_file();
    }
}

/// The second descriptor of an open file, without `O_DIRECT`.
#[derive(Debug)]
pub(super) struct Buffered {
    pub(super) fd: OwnedFd,
    pub(super) _counted: HeldFile,
}

/// The object that a handle names.
#[derive(Debug, Clone)]
pub(super) enum Open {
    File(FileRef),
    Directory(Arc<DirStream>),
}

/// Everything that is open, by handle. Each shard's lock is held for a lookup or a change, never across a system call.
#[derive(Debug)]
pub(super) struct Handles {
    shards: Box<[Mutex<Shard>]>,
    next_shard: AtomicU32,
    descriptors: Arc<Descriptors>,
}

#[derive(Debug)]
struct Shard {
    open: Slab<Open>,
    /// Objects that keep the handles of the daemon from which the guest has come.
    adopted: HashMap<u64, Open>,
    /// Memory that nobody refers to.
    spare_files: Vec<FileMemory>,
}

impl Handles {
    pub(super) fn new(descriptors: Arc<Descriptors>) -> Self {
        let shard = |at| {
            Mutex::new(Shard { open: Slab::new(at, SHARD_COUNT), adopted: HashMap::new(), spare_files: Vec::new() })
        };
        let shards = (0..SHARD_COUNT).map(shard).collect();
        Self { shards, next_shard: AtomicU32::new(0), descriptors }
    }

    /// Returns the descriptor counts that handles and inodes share.
    pub(super) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Reserves a slot before a file is opened. Errors: ENFILE if the limit on open files is reached.
    pub(super) fn reserve(&self) -> Result<OpenFileSlot<'_>, Errno> {
        self.descriptors.open_file()
    }

    /// Counts one more open file until the result is dropped. Errors: as [`Handles::reserve`].
    pub(super) fn hold(&self) -> Result<HeldFile, Errno> {
        self.reserve()?.keep();
        Ok(HeldFile(Arc::clone(&self.descriptors)))
    }

    /// Assigns a handle to an open file.
    pub(super) fn add_file(&self, slot: OpenFileSlot<'_>, nodeid: NodeId, fd: OwnedFd) -> Result<Handle, Errno> {
        let file = OpenFile::new(fd, nodeid);
        self.add(slot, |shard| {
            let mut memory = shard.spare_files.pop().unwrap_or_default();
            *Arc::get_mut(&mut memory).expect("nobody refers to spare memory") = Some(file);
            Open::File(FileRef(memory))
        })
    }

    /// Assigns a handle to an open directory.
    pub(super) fn add_directory(&self, slot: OpenFileSlot<'_>, stream: DirStream) -> Result<Handle, Errno> {
        let stream = Arc::new(stream);
        self.add(slot, |_| Open::Directory(stream))
    }

    /// Returns the open file of a handle. Errors: EBADF.
    pub(super) fn file(&self, fh: Handle) -> Result<FileRef, Errno> {
        match self.shard(fh).get(fh) {
            Some(Open::File(file)) => Ok(file.clone()),
            _ => Err(Errno::BADF),
        }
    }

    /// Returns the open directory of a handle. Errors: EBADF.
    pub(super) fn directory(&self, fh: Handle) -> Result<Arc<DirStream>, Errno> {
        match self.shard(fh).get(fh) {
            Some(Open::Directory(stream)) => Ok(Arc::clone(stream)),
            _ => Err(Errno::BADF),
        }
    }

    /// Returns whether the guest has the file open. Visits every open file.
    pub(super) fn has_open(&self, nodeid: NodeId) -> bool {
        self.open_file(nodeid).is_some()
    }

    /// Returns a file that the guest has open, by its inode. Visits every open file.
    pub(super) fn open_file(&self, nodeid: NodeId) -> Option<FileRef> {
        let it = |open: &Open| match open {
            Open::File(file) if file.nodeid == nodeid => Some(file.clone()),
            _ => None,
        };
        self.shards.iter().find_map(|shard| lock(shard).values().find_map(it))
    }

    /// Adds an open file under the handle that it had in another daemon. The handle must be free.
    pub(super) fn adopt_file(&self, slot: OpenFileSlot<'_>, fh: Handle, nodeid: NodeId, fd: OwnedFd) {
        let file = FileRef(Arc::new(Some(OpenFile::new(fd, nodeid))));
        self.shard(fh).adopted.insert(fh.0, Open::File(file));
        slot.keep();
    }

    /// Adds an open directory under the handle that it had in another daemon. The handle must be free.
    pub(super) fn adopt_directory(&self, slot: OpenFileSlot<'_>, fh: Handle, stream: DirStream) {
        self.shard(fh).adopted.insert(fh.0, Open::Directory(Arc::new(stream)));
        slot.keep();
    }

    /// Lets all handles from now on have at least this generation. Nothing may be open.
    pub(super) fn begin_at(&self, generation: u32) {
        self.shards.iter().for_each(|shard| lock(shard).open.begin_at(generation));
    }

    /// Returns a generation that no handle has had yet, also none of another daemon; `None` if they are used up.
    pub(super) fn unused_generation(&self) -> Option<u32> {
        self.shards.iter().map(|shard| lock(shard).open.unused_generation()).try_fold(0, |all, one| Some(all.max(one?)))
    }

    /// Returns all that is open, by handle.
    pub(super) fn all(&self) -> Vec<(Handle, Open)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let adopted = shard.adopted.iter().map(|(&key, open)| (key, open));
            all.extend(shard.open.iter().chain(adopted).map(|(key, open)| (Handle(key), open.clone())));
        }
        all
    }

    /// Removes a handle; the object is closed by its last user. Ignores an unknown handle.
    pub(super) fn remove(&self, fh: Handle) {
        let removed = self.shard(fh).remove(fh);
        if let Some(open) = removed {
            self.descriptors.close_file();
            self.close(fh, open);
        }
    }

    /// Closes the object that `fh` named, unless it is still in use, and keeps a file's memory for the next one.
    fn close(&self, fh: Handle, open: Open) {
        let Open::File(FileRef(mut memory)) = open else { return };
        let Some(file) = Arc::get_mut(&mut memory) else { return };
        drop(file.take());
        let mut shard = self.shard(fh);
        if shard.spare_files.len() < SPARE_FILES_MAX {
            shard.spare_files.push(memory);
        }
    }

    /// Removes all handles.
    pub(super) fn clear(&self) {
        for shard in &self.shards {
            let removed = lock(shard).drain();
            removed.iter().for_each(|_| self.descriptors.close_file());
        }
    }

    fn add(&self, slot: OpenFileSlot<'_>, open: impl FnOnce(&mut Shard) -> Open) -> Result<Handle, Errno> {
        let shard = self.next_shard.fetch_add(1, Relaxed) % SHARD_COUNT;
        let key = {
            let mut shard = lock(&self.shards[shard as usize]);
            let open = open(&mut shard);
            shard.open.insert(open)
        };
        // An object that did not get a key is closed here, without a lock.
        let key = key.map_err(|_| Errno::NFILE)?;
        slot.keep();
        Ok(Handle(key))
    }

    fn shard(&self, fh: Handle) -> MutexGuard<'_, Shard> {
        lock(&self.shards[slab::shard_of(fh.0, SHARD_COUNT)])
    }
}

impl Shard {
    fn get(&self, fh: Handle) -> Option<&Open> {
        self.open.get(fh.0).or_else(|| self.adopted.get(&fh.0))
    }

    fn values(&self) -> impl Iterator<Item = &Open> {
        self.open.values().chain(self.adopted.values())
    }

    fn remove(&mut self, fh: Handle) -> Option<Open> {
        self.open.remove(fh.0).or_else(|| self.adopted.remove(&fh.0))
    }

    fn drain(&mut self) -> Vec<Open> {
        let mut all = self.open.drain();
        all.extend(self.adopted.drain().map(|(_, open)| open));
        all
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "handles_test.rs"]
mod handles_test;
