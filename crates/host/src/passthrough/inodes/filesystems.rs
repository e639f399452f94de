//! The mounts in the share, and how inodes on each are reopened.
//!
//! A mount is known from its first inode on. If handles can be opened, the mount keeps one descriptor to open them
//! through, as long as there are inodes on it. Locks: the list's for a scan, a mount's own for its descriptor; no
//! system call is made under either.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed},
        },
    },
};

use rustix::fs::{FileType, OFlags, Statx};

use crate::{
    Errno,
    passthrough::{config::FileHandles, descriptors::Descriptors},
    sysfd::{FileHandle, MountId, ProcFds, stat},
};

/// The index of a mount in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FsId(u32);

/// All mounts seen so far.
#[derive(Debug)]
pub(super) struct Filesystems {
    list: RwLock<Vec<Arc<Filesystem>>>,
    wanted: FileHandles,
    /// Whether some mount's inodes are found by path.
    has_paths: AtomicBool,
}

/// One mount, or one subvolume on it.
#[derive(Debug)]
pub(super) struct Filesystem {
    mount: MountId,
    dev: (u32, u32),
    /// Known inodes on it.
    inodes: AtomicUsize,
    access: Mutex<Access>,
    /// An inode on it had no handle when that was needed.
    takes_handles_at_once: AtomicBool,
}

#[derive(Debug, Clone)]
enum Access {
    /// No inode has been seen that would settle it.
    Unknown,
    /// Handles can be opened, through this descriptor.
    Handles(Arc<OwnedFd>),
    /// Inodes have handles, but this process cannot open them.
    Recognised,
    /// There are no handles.
    Paths,
}

/// How to keep a reference to an inode.
#[derive(Debug)]
pub(super) enum Kept {
    /// By handle only.
    Handle(FileHandle),
    /// By path, with a handle to recognise the inode if there is one.
    Path(Option<FileHandle>),
}

impl Filesystems {
    pub(super) fn new(wanted: FileHandles) -> Self {
        Self { list: RwLock::default(), wanted, has_paths: AtomicBool::new(false) }
    }

    /// Returns the mount of the inode that `stat` describes, if it is known.
    pub(super) fn find(&self, stat: &Statx) -> Option<FsId> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().position(|fs| fs.is_of(stat)).map(|at| FsId(at as u32))
    }

    /// Returns a mount of this process of the file system that `stat` describes, whatever mount that is on. If there
    /// are several, the one that became known first.
    pub(super) fn find_by_dev(&self, stat: &Statx) -> Option<FsId> {
        let dev = (stat.stx_dev_major, stat.stx_dev_minor);
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        list.iter().position(|fs| fs.dev == dev).map(|at| FsId(at as u32))
    }

    /// Returns the mount of the inode that `stat` describes, adding it if it is new.
    pub(super) fn find_or_add(&self, stat: &Statx) -> FsId {
        if let Some(id) = self.find(stat) {
            return id;
        }
        let mut list = self.list.write().unwrap_or_else(PoisonError::into_inner);
        let at = list.iter().position(|fs| fs.is_of(stat)).unwrap_or_else(|| {
            list.push(Arc::new(Filesystem {
                mount: mount_of(stat),
                dev: (stat.stx_dev_major, stat.stx_dev_minor),
                inodes: AtomicUsize::new(0),
                access: Mutex::new(Access::Unknown),
                takes_handles_at_once: AtomicBool::new(false),
            }));
            list.len() - 1
        });
        FsId(at as u32)
    }

    /// Returns the id of a mount.
    pub(super) fn mount(&self, id: FsId) -> MountId {
        self.get(id).mount
    }

    /// Returns how inodes are to be kept.
    pub(super) fn wanted(&self) -> FileHandles {
        self.wanted
    }

    /// Returns the device number of a mount.
    pub(super) fn dev(&self, id: FsId) -> (u32, u32) {
        self.get(id).dev
    }

    /// Returns whether inodes may have been kept by path.
    pub(super) fn has_paths(&self) -> bool {
        self.has_paths.load(Relaxed)
    }

    /// Returns whether inodes on `id` are kept by handle.
    pub(super) fn opens_handles(&self, id: FsId) -> bool {
        matches!(self.get(id).access(), Access::Handles(_))
    }

    /// Decides how to keep the inode behind `fd`, and counts it.
    ///
    /// If no new inode results, or after an error, the caller has to call [`Filesystems::remove_inode`].
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP if handles are mandatory and not available.
    pub(super) fn keep(
        &self,
        id: FsId,
        fd: impl AsFd,
        file_type: FileType,
        proc_fds: &ProcFds,
        descriptors: &Descriptors,
    ) -> Result<Kept, Errno> {
        let fs = self.get(id);
        fs.inodes.fetch_add(1, AcqRel);
        let mut access = fs.access();
        let handle = match access {
            Access::Paths => None,
            _ if self.wanted == FileHandles::Never => None,
            _ => match FileHandle::of(&fd, fs.mount) {
                Ok(handle) => Some(handle),
                Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => None,
                Err(errno) => return Err(errno),
            },
        };
        if matches!(access, Access::Unknown) {
            access = match &handle {
                None => Access::Paths,
                Some(handle) => try_open(handle, &fd, file_type, proc_fds),
            };
            fs.learn(access.clone(), descriptors);
        }
        let kept = match (access, handle) {
            (Access::Handles(_), Some(handle)) => return Ok(Kept::Handle(handle)),
            (_, handle) => Kept::Path(handle),
        };
        if self.wanted == FileHandles::Mandatory {
            return Err(Errno::OPNOTSUPP);
        }
        self.has_paths.store(true, Relaxed);
        Ok(kept)
    }

    /// Counts an inode whose handle can be taken and opened later, and returns true, or returns false without counting
    /// it if that is not certain.
    pub(super) fn keep_without_handle(&self, id: FsId, descriptors: &Descriptors) -> bool {
        let fs = self.get(id);
        fs.inodes.fetch_add(1, AcqRel);
        // Read after counting: from now on, it stays.
        let opens_handles = matches!(*fs.access.lock().unwrap_or_else(PoisonError::into_inner), Access::Handles(_));
        let may_wait = opens_handles && !fs.takes_handles_at_once.load(Relaxed);
        if !may_wait {
            self.remove_inode(id, descriptors);
        }
        may_wait
    }

    /// Lets [`Filesystems::keep_without_handle`] refuse from now on.
    pub(super) fn take_handles_at_once(&self, id: FsId) {
        self.get(id).takes_handles_at_once.store(true, Relaxed);
    }

    /// Opens an inode by its handle. Errors: ESTALE if it is gone, or its mount is no longer open.
    pub(super) fn open(&self, id: FsId, handle: &FileHandle, flags: OFlags) -> Result<OwnedFd, Errno> {
        let Access::Handles(on_mount) = self.get(id).access() else { return Err(Errno::STALE) };
        handle.open(&*on_mount, flags)
    }

    /// Counts one inode less on `id`; closes the mount's descriptor with the last one.
    pub(super) fn remove_inode(&self, id: FsId, descriptors: &Descriptors) {
        let fs = self.get(id);
        if fs.inodes.fetch_sub(1, AcqRel) == 1 {
            let mut access = fs.access.lock().unwrap_or_else(PoisonError::into_inner);
            // Another inode may have been counted meanwhile; that thread reads `access` after counting.
            if fs.inodes.load(Acquire) == 0 {
                let before = std::mem::replace(&mut *access, Access::Unknown);
                drop(access);
                before.release(descriptors);
            }
        }
    }

    fn get(&self, id: FsId) -> Arc<Filesystem> {
        let list = self.list.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&list[id.0 as usize])
    }
}

impl Filesystem {
    fn is_of(&self, stat: &Statx) -> bool {
        self.mount == mount_of(stat) && self.dev == (stat.stx_dev_major, stat.stx_dev_minor)
    }

    fn access(&self) -> Access {
        self.access.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn learn(&self, access: Access, descriptors: &Descriptors) {
        if matches!(access, Access::Handles(_)) {
            descriptors.add();
        }
        let before = std::mem::replace(&mut *self.access.lock().unwrap_or_else(PoisonError::into_inner), access);
        before.release(descriptors);
    }
}

impl Access {
    fn release(self, descriptors: &Descriptors) {
        if matches!(self, Self::Handles(_)) {
            descriptors.remove();
        }
    }
}

/// Tests whether `handle` can be opened again, through the inode itself.
fn try_open(handle: &FileHandle, fd: impl AsFd, file_type: FileType, proc_fds: &ProcFds) -> Access {
    // Only these two types are certain to have no side effect when opened.
    if !matches!(file_type, FileType::Directory | FileType::RegularFile) {
        return Access::Unknown;
    }
    let Ok(on_mount) = proc_fds.reopen(fd, OFlags::RDONLY | OFlags::NONBLOCK) else { return Access::Recognised };
    match handle.open(&on_mount, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(_) => Access::Handles(Arc::new(on_mount)),
        Err(_) => Access::Recognised,
    }
}

fn mount_of(stat: &Statx) -> MountId {
    stat::mount_id(stat).unwrap_or(MountId(0))
}
