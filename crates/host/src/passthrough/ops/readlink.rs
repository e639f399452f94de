//! READLINK.

use rustix::fs::FileType;
use transom_wire::NodeId;

use crate::{Errno, passthrough::Passthrough, sysfd::path};

impl Passthrough {
    /// Errors: EINVAL where the inode is no symbolic link.
    pub(in crate::passthrough) fn do_readlink(&self, nodeid: NodeId) -> Result<Vec<u8>, Errno> {
        let inode = self.inodes.get(nodeid)?;
        if inode.file_type == FileType::Symlink { path::readlink(&inode.fd) } else { Err(Errno::INVAL) }
    }
}
