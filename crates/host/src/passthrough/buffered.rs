//! Buffered requests on a file that the guest has opened with `O_DIRECT`.
//!
//! There are two kinds. Linux writes pages of its cache back through any writable open file of the inode, and marks
//! these requests. And a program may clear `O_DIRECT` with `F_SETFL`, as dd does for the end of a file. Both have
//! arbitrary lengths, which the host refuses as unaligned under `O_DIRECT`. They go through a second descriptor
//! without `O_DIRECT`, which is opened for the first such request and closed with the handle. The host keeps the two
//! coherent: a direct read or write first writes the host's cached pages back, and a direct write invalidates them.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use super::{
    Passthrough,
    handles::{Buffered, OpenFile},
};
use crate::Errno;

/// The flags that the second descriptor shares with the first.
const SHARED: OFlags = OFlags::RWMODE.union(OFlags::APPEND).union(OFlags::SYNC).union(OFlags::DSYNC);

impl Passthrough {
    /// Returns the descriptor of `file` for a request whose open file now has `flags`. Opens the second one if
    /// necessary.
    pub(super) fn descriptor<'a>(&self, file: &'a OpenFile, flags: u32) -> BorrowedFd<'a> {
        if flags & OFlags::DIRECT.bits() != 0 { file.fd.as_fd() } else { self.not_direct(file) }
    }

    /// Returns the descriptor of `file` without `O_DIRECT`. Opens it on the first call, if necessary.
    pub(super) fn not_direct<'a>(&self, file: &'a OpenFile) -> BorrowedFd<'a> {
        if !self.config.allow_direct_io {
            return file.fd.as_fd();
        }
        let buffered = file.buffered.get_or_init(|| self.buffered(file));
        buffered.as_ref().map_or(file.fd.as_fd(), |buffered| buffered.fd.as_fd())
    }

    /// Returns a second descriptor for `file`, or `None` if its own suffices.
    fn buffered(&self, file: &OpenFile) -> Option<Buffered> {
        let flags = fcntl_getfl(&file.fd).ok()?;
        if !flags.contains(OFlags::DIRECT) {
            return None;
        }
        let opened = self.open_buffered(file, flags & SHARED);
        opened
            .inspect_err(|&errno| {
                // No descriptor is left, or the file cannot be opened again. Its own descriptor then loses O_DIRECT
                // for good, which slows down the guest's direct requests but loses no data.
                let outcome = fcntl_setfl(&file.fd, flags - OFlags::DIRECT);
                tracing::debug!(%errno, ?outcome, nodeid = %file.nodeid, "a file is used without O_DIRECT from now on");
            })
            .ok()
    }

    fn open_buffered(&self, file: &OpenFile, flags: OFlags) -> Result<Buffered, Errno> {
        let held = self.handles.hold()?;
        self.inodes.balance();
        let fd = self.inodes.with_room(|| self.proc_fds.reopen(&file.fd, flags))?;
        Ok(Buffered { fd, _counted: held })
    }
}
