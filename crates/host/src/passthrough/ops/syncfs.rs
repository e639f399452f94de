//! SYNCFS.

use rustix::fs::OFlags;
use transom_wire::NodeId;

use crate::{Errno, passthrough::Passthrough};

impl Passthrough {
    /// Syncs the host's file system that the inode lies on: the guest asks for each of its own, and has one for each of
    /// the host's where submounts are announced.
    pub(in crate::passthrough) fn do_syncfs(&self, nodeid: NodeId) -> Result<(), Errno> {
        rustix::fs::syncfs(self.inodes.open(nodeid, OFlags::RDONLY | OFlags::NONBLOCK)?)
    }
}
