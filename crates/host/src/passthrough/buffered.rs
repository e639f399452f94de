//! Pages of the guest's cache that are written through a file which the guest has opened with `O_DIRECT`.
//!
//! Linux writes dirty pages back through any open file of the inode that can be written, and says so in the request. Such a
//! request ends where the file ends, which `O_DIRECT` on the host refuses as unaligned: the data would be lost. These
//! requests go through a second descriptor without `O_DIRECT`, which is opened with the first of them and closed with the
//! handle. The host keeps the two coherent: a direct read or write first writes the host's cached pages back, and a direct
//! write invalidates them.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{
    Passthrough,
    handles::{HeldFile, OpenFile},
};
use crate::Errno;

/// What the second descriptor has of the first one's flags; it is only written.
const SHARED: OFlags = OFlags::APPEND.union(OFlags::SYNC).union(OFlags::DSYNC);

/// The second descriptor of an open file. It counts as one more open file.
#[derive(Debug)]
pub(super) struct Buffered {
    fd: OwnedFd,
    _held: HeldFile,
}

impl Passthrough {
    /// The descriptor of `file` to write pages of the guest's cache through. Opens one with the first call, if need be.
    pub(super) fn for_cached_pages<'a>(&self, file: &'a OpenFile) -> BorrowedFd<'a> {
        if !self.config.allow_direct_io {
            return file.fd.as_fd();
        }
        let buffered = file.buffered.get_or_init(|| self.buffered(file));
        buffered.as_ref().map_or(file.fd.as_fd(), |buffered| buffered.fd.as_fd())
    }

    /// A second descriptor for `file`; `None` where its own will do.
    fn buffered(&self, file: &OpenFile) -> Option<Buffered> {
        let flags = fcntl_getfl(&file.fd).ok()?;
        if !flags.contains(OFlags::DIRECT) || flags & OFlags::RWMODE == OFlags::RDONLY {
            return None;
        }
        let opened = self.open_buffered(file, flags & SHARED | OFlags::WRONLY);
        opened
            .inspect_err(|&errno| {
                // No descriptor is left, or nobody may open the file again. Its own one then loses O_DIRECT for good: that is
                // slower for the guest's direct requests, and loses no data.
                let outcome = fcntl_setfl(&file.fd, flags - OFlags::DIRECT);
                tracing::debug!(%errno, ?outcome, nodeid = %file.nodeid, "a file is written without O_DIRECT from now on");
            })
            .ok()
    }

    fn open_buffered(&self, file: &OpenFile, flags: OFlags) -> Result<Buffered, Errno> {
        let held = self.handles.hold()?;
        self.inodes.balance();
        let fd = self.inodes.with_room(|| self.proc_fds.reopen(&file.fd, flags))?;
        Ok(Buffered { fd, _held: held })
    }
}
