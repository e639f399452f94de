//! Reopens descriptors that were closed to stay within the limits.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use transom_wire::NodeId;

use super::{
    Fd, Inode, Inodes,
    identity::{Hold, Identity, Path},
};
use crate::{
    Errno,
    sysfd::{FileHandle, path, stat},
};

/// Maximum number of directories on the path to an inode. Bounds the work of a single request, and ends the search if
/// renames by the host have made the known paths circular.
const DEPTH_MAX: usize = 4096;

/// Refers to an inode of any type without opening it.
pub(super) const REFER: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

/// How an inode can be reached now.
enum Way {
    Open(Fd),
    Handle(Identity, FileHandle),
    Path(Identity, Path),
}

impl Inodes {
    /// Reopens the inode's descriptor and keeps it. Errors: ESTALE if another inode is found.
    pub(super) fn reopen(&self, nodeid: NodeId) -> Result<Fd, Errno> {
        let mut below: Vec<(NodeId, Identity, Path)> = Vec::new();
        let mut at = nodeid;
        let mut dir = loop {
            match self.way(at)? {
                Way::Open(fd) => break fd,
                Way::Handle(identity, handle) => break self.reopen_handle(at, &identity, &handle)?,
                Way::Path(identity, path) => {
                    let parent = path.parent;
                    if below.len() == DEPTH_MAX || path.name.is_empty() {
                        return Err(Errno::STALE);
                    }
                    below.push((at, identity, path));
                    at = parent;
                }
            }
        };
        for (nodeid, identity, path) in below.iter().rev() {
            let fd = self.open_verified(&dir, identity, path)?;
            dir = self.keep(*nodeid, fd);
        }
        Ok(dir)
    }

    /// Returns the inode with `fd`, an `O_PATH` descriptor of it that is not kept.
    ///
    /// # Errors
    ///
    /// ESTALE if the guest does not know the inode.
    pub(in crate::passthrough) fn with_descriptor(&self, nodeid: NodeId, fd: OwnedFd) -> Result<Inode, Errno> {
        let shard = self.shard(nodeid);
        let entry = shard.entries.get(nodeid.0).ok_or(Errno::STALE)?;
        let (file_type, Identity { fs, ino, .. }) = (entry.file_type, entry.identity);
        drop(shard);
        Ok(Inode { fd: self.open_clock.path_fd(fd), file_type, fs, ino })
    }

    /// Opens the inode for reading or writing. Only regular files and directories are ever opened.
    ///
    /// Blocks on the host's file system.
    ///
    /// # Errors
    ///
    /// ELOOP for a symbolic link, ENXIO for a FIFO, socket or device: these live in the guest's kernel, and opening
    /// one here could block forever or reach a device of the host.
    pub(crate) fn open(&self, nodeid: NodeId, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (file_type, by_handle, kept) = {
            if nodeid == NodeId::ROOT {
                (self.root.file_type, None, Some(self.root.fd.clone()))
            } else {
                let mut shard = self.shard(nodeid);
                let entry = shard.entries.get(nodeid.0).ok_or(Errno::STALE)?;
                let file_type = entry.file_type;
                match &entry.hold {
                    // Not every file system can open a handle after the last name is gone.
                    Hold::Handle(handle) if !entry.is_pinned => {
                        (file_type, Some((entry.identity, handle.clone())), None)
                    }
                    _ => (file_type, None, shard.kept(nodeid.0)),
                }
            }
        };
        match file_type {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP),
            _ => return Err(Errno::NXIO),
        }
        if let Some((identity, handle)) = by_handle {
            let flags = flags - OFlags::NOFOLLOW;
            return self.with_room(|| self.filesystems.open(identity.fs, &handle, flags));
        }
        let fd = kept.map_or_else(|| self.reopen(nodeid), Ok)?;
        self.with_room(|| self.proc_fds.reopen(&fd, flags))
    }

    fn way(&self, nodeid: NodeId) -> Result<Way, Errno> {
        if nodeid == NodeId::ROOT {
            return Ok(Way::Open(Arc::clone(&self.root.fd)));
        }
        let mut shard = self.shard(nodeid);
        if let Some(fd) = shard.kept(nodeid.0) {
            return Ok(Way::Open(fd));
        }
        let entry = shard.entries.get(nodeid.0).ok_or(Errno::STALE)?;
        Ok(match &entry.hold {
            Hold::Handle(handle) => Way::Handle(entry.identity, handle.clone()),
            Hold::Path(path) => Way::Path(entry.identity, (**path).clone()),
            // The descriptor is kept, and was found above.
            Hold::Descriptor => return Err(Errno::STALE),
        })
    }

    fn reopen_handle(&self, nodeid: NodeId, identity: &Identity, handle: &FileHandle) -> Result<Fd, Errno> {
        match self.with_room(|| self.filesystems.open(identity.fs, handle, REFER)) {
            Ok(fd) => Ok(self.keep(nodeid, fd)),
            Err(errno) => {
                // A new inode with the same number, born in the same tick, must not be taken for the old one.
                if errno == Errno::STALE {
                    self.shard(nodeid).unindex(nodeid.0);
                }
                Err(errno)
            }
        }
    }

    fn open_verified(&self, dir: impl AsFd, identity: &Identity, path: &Path) -> Result<OwnedFd, Errno> {
        let open = || path::open_beneath(&dir, &*path.name, REFER, Mode::empty());
        let fd = self.with_room(open).map_err(|errno| match errno {
            // ESTALE instead of ENOENT: the guest has the inode, and looks its name up again.
            Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Errno::STALE,
            errno => errno,
        })?;
        let stat = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY)?;
        let fs = self.filesystems.find(&stat).ok_or(Errno::STALE)?;
        if Identity::new(fs, &stat) != *identity {
            return Err(Errno::STALE);
        }
        if let Some(handle) = &path.handle
            && FileHandle::of(&fd, handle.mount())? != *handle
        {
            return Err(Errno::STALE);
        }
        Ok(fd)
    }

    /// Keeps `fd` for the inode, unless it has a descriptor by now; returns the one that is kept.
    fn keep(&self, nodeid: NodeId, fd: OwnedFd) -> Fd {
        let fd = self.open_clock.path_fd(fd);
        let mut shard = self.shard(nodeid);
        match shard.keep(nodeid.0, &fd, false) {
            Ok(()) => {
                self.count_spare(&shard, nodeid.0);
                drop(shard);
                self.balance();
                fd
            }
            Err(kept) => kept.unwrap_or(fd),
        }
    }
}
