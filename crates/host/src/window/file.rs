//! Mapped files, each with one descriptor for all of its ranges.

use std::{
    fmt,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::fs::{Stat, fstat};
use transom_wire::NodeId;

use crate::Errno;

/// Creates descriptors whose mappings access a file, and whose size is unlimited.
pub trait PaddedFiles: Send + Sync {
    /// Returns a descriptor for `file`, which is a regular file open for reading and writing. Blocks.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP if the file's file system does not support it.
    fn view(&self, file: BorrowedFd<'_>) -> Result<OwnedFd, Errno>;

    /// Keeps other processes from truncating `file` until the result is dropped. Blocks.
    ///
    /// # Errors
    ///
    /// EOPNOTSUPP if the kernel or the file's file system does not support it.
    fn guard(&self, file: BorrowedFd<'_>) -> Result<Box<dyn Send + Sync>, Errno>;
}

/// Identifies the file that a descriptor refers to, as seen through any copy of the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    dev: u64,
    ino: u64,
}

/// A file with the descriptor that the front end maps.
pub struct MappedFile {
    pub(super) nodeid: NodeId,
    name: String,
    pub(super) fd: OwnedFd,
    pub(super) identity: FileIdentity,
    pub(super) is_writable: bool,
    /// A mapping may extend past the end of the file.
    pub(super) is_padded: bool,
    /// Dropped with the last mapping.
    _held: Box<dyn Send + Sync>,
}

impl FileIdentity {
    /// Returns the identity of the file behind `fd`.
    pub fn of(fd: impl AsFd) -> Result<Self, Errno> {
        let Stat { st_dev, st_ino, .. } = fstat(fd)?;
        Ok(Self { dev: st_dev, ino: st_ino })
    }
}

impl MappedFile {
    /// Creates a record of the file of `nodeid`, called `name`, to be mapped through `fd`. `held` is dropped once none
    /// of its ranges is mapped any more.
    pub fn new(
        nodeid: NodeId,
        name: String,
        fd: OwnedFd,
        is_writable: bool,
        is_padded: bool,
        held: Box<dyn Send + Sync>,
    ) -> Result<Self, Errno> {
        Ok(Self { nodeid, name, identity: FileIdentity::of(&fd)?, fd, is_writable, is_padded, _held: held })
    }

    /// Returns the file's name when it was opened, for display.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the file offset at which mappings must end. A file's size changes; that of a padded one does not
    /// matter.
    pub(super) fn mappable_end(&self) -> Result<u64, Errno> {
        if self.is_padded { Ok(u64::MAX) } else { Ok(fstat(&self.fd)?.st_size.cast_unsigned()) }
    }
}

impl AsFd for MappedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for MappedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { nodeid, name, fd, is_writable, is_padded, .. } = self;
        write!(f, "MappedFile({nodeid:?}, {name:?}, {fd:?}, writable: {is_writable}, padded: {is_padded})")
    }
}
