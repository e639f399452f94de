//! The identity of an inode, and how it is referenced while no descriptor is open on it.

use rustix::fs::{FileType, Statx, StatxFlags};
use transom_wire::NodeId;

use super::{Inode, Inodes, filesystems::FsId};
use crate::sysfd::FileHandle;

/// The location of an inode and its birth time.
///
/// An inode number can be reused once the inode is gone. The birth time tells the two apart unless both were born in
/// one tick of the host's clock; the file handle, if there is one, always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) ino: u64,
    /// Nanoseconds since 1970, wrapped; 0 if the file system does not know.
    pub(super) born_ns: u64,
    pub(super) fs: FsId,
}

/// The device and number of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct InodeKey {
    pub(crate) dev: (u32, u32),
    pub(crate) ino: u64,
}

/// How an inode is found again after its descriptor was closed.
#[derive(Debug, Clone)]
pub(super) enum Hold {
    /// By its handle.
    Handle(FileHandle),
    /// By its name in a directory, if handles cannot be opened.
    Path(Box<Path>),
    /// By the entry's descriptor. Its handle is taken before that is closed, and has not been needed so far.
    Descriptor,
}

/// The name by which an inode was last found.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// The directory, which counts this one among its `children`.
    pub(super) parent: NodeId,
    /// Empty for a file that has no name.
    pub(super) name: Vec<u8>,
    /// Recognises the inode if the file system has handles that this process may not open.
    pub(super) handle: Option<FileHandle>,
}

impl Identity {
    pub(super) fn new(fs: FsId, stat: &Statx) -> Self {
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let since_1970 = |sec: i64, nsec: u32| sec.wrapping_mul(1_000_000_000).wrapping_add(i64::from(nsec));
        let born_ns = if has_birth { since_1970(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec) } else { 0 };
        Self { ino: stat.stx_ino, born_ns: born_ns.cast_unsigned(), fs }
    }
}

impl InodeKey {
    /// Returns the key of the inode that `stat` describes.
    pub(crate) fn of(stat: &Statx) -> Self {
        Self { dev: (stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino }
    }
}

impl Hold {
    /// Returns whether only a descriptor leads to the inode.
    pub(super) fn is_nameless(&self) -> bool {
        matches!(self, Self::Path(path) if path.name.is_empty())
    }

    pub(super) fn handle(&self) -> Option<&FileHandle> {
        match self {
            Self::Handle(handle) => Some(handle),
            Self::Path(path) => path.handle.as_ref(),
            Self::Descriptor => None,
        }
    }
}

impl Inodes {
    /// Returns the device and number of an inode.
    pub(in crate::passthrough) fn key(&self, inode: &Inode) -> InodeKey {
        InodeKey { dev: self.filesystems.dev(inode.fs), ino: inode.ino }
    }
}

/// Returns the type of the inode that `stat` describes.
pub(crate) fn file_type(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}
