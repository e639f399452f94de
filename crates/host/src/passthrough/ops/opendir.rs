//! OPENDIR.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use transom_wire::{
    NodeId,
    operation::Opendir,
    ops::open::{OpenFlags, OpenOut},
};

use crate::{
    Errno,
    passthrough::{Passthrough, dir_stream::DirStream},
    server::{Call, Serve},
};

impl Serve<Opendir> for Passthrough {
    fn serve(&self, call: Call<'_, Opendir>) -> Result<OpenOut, Errno> {
        let slot = self.handles.reserve()?;
        let fh = self.handles.add_directory(slot, self.open_directory(call.nodeid)?)?;
        self.note_quota_open(fh);
        let mut flags = OpenFlags::empty();
        if self.config.cache.keeps_directories() {
            flags |= OpenFlags::CACHE_DIR | OpenFlags::KEEP_CACHE;
        }
        Ok(OpenOut { fh: fh.into(), open_flags: flags.bits().into(), backing_id: 0.into() })
    }
}

impl Passthrough {
    /// Opens a directory that the guest knows.
    pub(in crate::passthrough) fn open_directory(&self, nodeid: NodeId) -> Result<DirStream, Errno> {
        self.inodes.balance();
        let fd = self.inodes.open(nodeid, OFlags::RDONLY | OFlags::DIRECTORY)?;
        self.directory_of(nodeid, fd)
    }

    /// Returns a stream of the directory that `fd` has open, which the guest knows.
    pub(in crate::passthrough) fn directory_of(&self, nodeid: NodeId, fd: OwnedFd) -> Result<DirStream, Errno> {
        let listing = self.listing(&self.inodes.get(nodeid)?);
        Ok(DirStream::new(fd, nodeid, listing, &self.read_ahead))
    }
}
