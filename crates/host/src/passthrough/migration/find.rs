//! Finds an inode that a state describes: below a directory, by its handle, or behind a descriptor.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode as FileMode};
use transom_wire::NodeId;

use super::load::{Loader, REFER, errno};
use crate::{
    Errno,
    migration::{self, Inode},
    passthrough::inodes::InodeFd,
    sysfd::{FileHandle, MountId, path, stat},
};

impl Loader<'_> {
    /// Counts one lookup of the inode at `path` below a directory.
    pub(super) fn find(&self, parent: NodeId, path: &[u8], inode: &Inode<'_>) -> Result<NodeId, Errno> {
        let inodes = &self.fs.inodes;
        let dir = inodes.get(parent)?;
        let fd = inodes.with_room(|| path::open_beneath(&dir.fd, path, REFER, FileMode::empty()))?;
        let stat = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY)?;
        if let Some(expected) = &inode.handle {
            let found = FileHandle::of(&fd, MountId(0))?;
            let expected = FileHandle::from_parts(MountId(0), expected.type_, &expected.bytes);
            if expected != Some(found) {
                return Err(Errno::STALE);
            }
        }
        Ok(inodes.admit(parent, path, &stat, InodeFd::Owned(fd))?.0)
    }

    /// Counts one lookup of the inode with a handle.
    pub(super) fn find_by_handle(&self, handle: &migration::FileHandle<'_>) -> Result<NodeId, Errno> {
        let inodes = &self.fs.inodes;
        let on_mount = self.mounts.get(&handle.mount).ok_or(Errno::NODEV)?;
        let opened = FileHandle::from_parts(MountId(0), handle.type_, &handle.bytes).ok_or(Errno::INVAL)?;
        let fd = inodes.with_room(|| opened.open(on_mount, REFER))?;
        let stat = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY)?;
        let nodeid = inodes.admit(NodeId::ROOT, b"", &stat, InodeFd::Owned(fd.try_clone().map_err(errno)?))?.0;
        // Nothing else keeps an inode without names, and without handles nothing finds it again.
        if stat.stx_nlink == 0 || inodes.prefers_paths() {
            inodes.pin_adopted(nodeid, fd).inspect_err(|_| _ = inodes.forget(nodeid, 1))?;
        }
        Ok(nodeid)
    }

    /// Counts one lookup of the inode behind an `O_PATH` descriptor of another process of this host.
    ///
    /// The descriptor is on a mount of that process. The inode is known as one of this process's mount, so that it
    /// stays one inode if the guest looks up another name of it.
    pub(super) fn find_by_descriptor(&self, fd: OwnedFd) -> Result<NodeId, Errno> {
        let inodes = &self.fs.inodes;
        let stat = stat::statx(&fd, AtFlags::empty(), stat::IDENTITY)?;
        if let Some((stat, own)) = inodes.reopen_on_own_mount(&fd, &stat) {
            return Ok(inodes.admit(NodeId::ROOT, b"", &stat, InodeFd::Owned(own))?.0);
        }
        let nodeid = inodes.admit_foreign(&stat, fd.try_clone().map_err(errno)?)?;
        inodes.pin_adopted(nodeid, fd).inspect_err(|_| _ = inodes.forget(nodeid, 1))?;
        Ok(nodeid)
    }
}

/// Splits a path into that of the directory and a name in it.
pub(super) fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|&byte| byte == b'/')?;
    let (above, name) = (&path[..at], &path[at + 1..]);
    (!matches!(name, b"" | b"." | b"..")).then_some((above, name))
}
