//! LINK.

use std::os::fd::AsFd;

use transom_wire::{Name, NodeId, attr::EntryOut};

use crate::{
    Errno,
    passthrough::{Passthrough, inodes::Sight},
};

impl Passthrough {
    pub(in crate::passthrough) fn do_link(
        &self,
        old: NodeId,
        parent: NodeId,
        name: Name<'_>,
    ) -> Result<EntryOut, Errno> {
        self.check_writable()?;
        let (inode, dir) = (self.inodes.get(old)?, self.inodes.get(parent)?);
        self.proc_fds.link(&inode.fd, &dir.fd, name.as_bytes())?;
        let entry = self.admit(parent, &dir, name.as_bytes(), Sight::Borrowed(inode.fd.as_fd()))?;
        // A file that was created without a name has one now.
        self.inodes.unpin(old);
        Ok(entry)
    }
}
