//! The inode numbers of objects that events name by their handles.
//!
//! Most file systems put the number into the handle, which says it even of an object that is gone. Whether one does is
//! tried out on a directory of it; of others, the object is opened.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags, fstatfs, openat, statx},
    io::Errno,
};

use crate::{HandleRef, ObjectHandle};

const EXT_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;
const BTRFS_MAGIC: i64 = 0x9123_683e;
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// Inode number and generation, 32 bits each (`FILEID_INO32_GEN` of linux/exportfs.h).
const INO32_GEN: i32 = 1;
/// 64 bits of inode number, then the generation (`XFS_FILEID_TYPE_64FLAG` and `FILEID_INO32_GEN`).
const XFS_INO64_GEN: i32 = 0x81;
/// Handles of btrfs begin with the inode number (`FILEID_BTRFS_WITHOUT_PARENT` and those with a parent).
const BTRFS: [i32; 3] = [0x4d, 0x4e, 0x4f];

/// Finds inode numbers on one file system.
#[derive(Debug)]
pub struct InodeNumbers {
    root: OwnedFd,
    layout: Option<Layout>,
}

/// Where the number is in a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Ext,
    Xfs,
    Btrfs,
    Tmpfs,
}

impl InodeNumbers {
    /// Finds numbers on the file system of `root`, a directory, which may be `O_PATH`.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP if the file system has no handles; those of open(2).
    pub fn new(root: impl AsFd) -> Result<Self, Errno> {
        // Handles are opened relative to a descriptor that is not O_PATH.
        let root = openat(root, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let (handle, ino) = (ObjectHandle::of(&root)?, number(&root)?);
        let layout = match fstatfs(&root)?.f_type {
            EXT_MAGIC => Some(Layout::Ext),
            XFS_MAGIC => Some(Layout::Xfs),
            BTRFS_MAGIC => Some(Layout::Btrfs),
            TMPFS_MAGIC => Some(Layout::Tmpfs),
            _ => None,
        };
        let layout = layout.filter(|layout| layout.ino(handle.as_ref()) == Some(ino));
        Ok(Self { root, layout })
    }

    /// Returns the inode number of an object.
    ///
    /// # Errors
    ///
    /// ESTALE if the object is gone and its handle does not say; EPERM without CAP_DAC_READ_SEARCH in that case.
    pub fn ino(&self, handle: HandleRef<'_>) -> Result<u64, Errno> {
        match self.layout.and_then(|layout| layout.ino(handle)) {
            Some(ino) => Ok(ino),
            None => number(self.open(handle, OFlags::PATH)?),
        }
    }

    /// Opens an object.
    ///
    /// # Errors
    ///
    /// ESTALE if it is gone; EPERM without CAP_DAC_READ_SEARCH; those of open(2).
    pub fn open(&self, handle: HandleRef<'_>, flags: OFlags) -> Result<OwnedFd, Errno> {
        handle.open(&self.root, flags)
    }
}

impl Layout {
    fn ino(self, handle: HandleRef<'_>) -> Option<u64> {
        let bytes = handle.bytes();
        let word = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = || Some(u64::from_ne_bytes(bytes.get(..8)?.try_into().ok()?));
        match (self, handle.handle_type()) {
            (Self::Ext | Self::Xfs, INO32_GEN) => word(0).map(u64::from),
            (Self::Xfs, XFS_INO64_GEN) => long(),
            (Self::Btrfs, of) if BTRFS.contains(&of) => long(),
            // The generation comes first.
            (Self::Tmpfs, INO32_GEN) => Some(u64::from(word(4)?) | u64::from(word(8)?) << 32),
            _ => None,
        }
    }
}

fn number(fd: impl AsFd) -> Result<u64, Errno> {
    Ok(statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::INO)?.stx_ino)
}

#[cfg(test)]
#[path = "numbers_test.rs"]
mod tests;
