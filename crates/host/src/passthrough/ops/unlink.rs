//! UNLINK and RMDIR.

use rustix::fs::AtFlags;
use transom_wire::{Name, NodeId};

use crate::{Errno, passthrough::Passthrough};

impl Passthrough {
    /// `flags` are those of unlinkat(2).
    pub(in crate::passthrough) fn do_unlink(
        &self,
        parent: NodeId,
        name: Name<'_>,
        flags: AtFlags,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        let dir = self.inodes.get(parent)?;
        let pinned = self.inodes.pin_last_name(&dir.fd, name.as_bytes());
        rustix::fs::unlinkat(&dir.fd, name.as_bytes(), flags)?;
        if let Some(pinned) = pinned {
            pinned.keep();
        }
        Ok(())
    }
}
