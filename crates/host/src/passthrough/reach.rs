//! Reaches inodes that the guest uses through a file that it has open, if nothing else leads to them.
//!
//! Whoever has a file open may change its mode or read its attributes after its last name is gone. An inode is pinned
//! before the guest removes its last name. That is not enough if the host removes the name, if an overlay answers for
//! another inode than the one that was opened, or at the limit on pinned inodes.
//!
//! Operations that only a path leads to are not served so: OPEN, LINK, and SETATTR of the size without a handle. After
//! ESTALE, Linux looks the path up again, and finds the file that has the name by now. The others come from a path or
//! from an open file, which FUSE does not tell apart. So `chmod` of a name that the host has given to another file a
//! moment ago can still change the file that the guest has open, as it does where handles lead to inodes.

use std::os::fd::OwnedFd;

use rustix::fs::OFlags;
use transom_wire::NodeId;

use super::{Passthrough, inodes::Inode};
use crate::Errno;

impl Passthrough {
    /// Returns an inode that the guest knows. Blocks on the host's file system if its descriptor was closed.
    ///
    /// # Errors
    ///
    /// ESTALE if the guest does not know the inode, or neither a name nor an open file leads to it.
    pub(super) fn inode(&self, nodeid: NodeId) -> Result<Inode, Errno> {
        match self.inodes.get(nodeid) {
            Err(Errno::STALE) => self.inode_of_open_file(nodeid),
            outcome => outcome,
        }
    }

    /// Opens an inode that the guest has open, and maps. Errors: as [`Self::inode`], and those of open(2).
    pub(super) fn open_again(&self, nodeid: NodeId, flags: OFlags) -> Result<OwnedFd, Errno> {
        match self.inodes.open(nodeid, flags) {
            Err(Errno::STALE) => {
                let inode = self.inode_of_open_file(nodeid)?;
                self.inodes.with_room(|| self.proc_fds.reopen(&inode.fd, flags))
            }
            outcome => outcome,
        }
    }

    /// Visits every open file, if the guest knows the inode.
    fn inode_of_open_file(&self, nodeid: NodeId) -> Result<Inode, Errno> {
        self.inodes.identity(nodeid).ok_or(Errno::STALE)?;
        let file = self.handles.open_file(nodeid).ok_or(Errno::STALE)?;
        // Not kept: with a descriptor, OPEN would find the old file where it has to be ESTALE.
        let fd = self.inodes.with_room(|| self.proc_fds.reopen(&file.fd, OFlags::PATH))?;
        self.inodes.with_descriptor(nodeid, fd)
    }
}
