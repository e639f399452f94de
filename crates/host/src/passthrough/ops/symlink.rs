//! SYMLINK.

use rustix::fs::AtFlags;
use transom_wire::{Name, NodeId, attr::EntryOut};

use crate::{Errno, passthrough::Passthrough, server::Context};

impl Passthrough {
    /// The target is the guest's affair: nothing here ever follows it.
    pub(in crate::passthrough) fn do_symlink(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &[u8],
    ) -> Result<EntryOut, Errno> {
        self.check_writable()?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        {
            let _creator = self.creator(ctx, 0)?;
            rustix::fs::symlinkat(target, &dir.fd, name.as_bytes())?;
        }
        self.created(ctx, parent, &dir, name.as_bytes(), AtFlags::empty())
    }
}
