//! UNLINK and RMDIR.

use rustix::fs::AtFlags;
use transom_wire::{
    Name, NodeId,
    operation::{Rmdir, Unlink},
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Context, Serve},
};

impl Serve<Unlink> for Passthrough {
    fn serve(&self, call: Call<'_, Unlink>) -> Result<(), Errno> {
        self.remove(&call.ctx, call.nodeid, call.name, AtFlags::empty())
    }
}

impl Serve<Rmdir> for Passthrough {
    fn serve(&self, call: Call<'_, Rmdir>) -> Result<(), Errno> {
        self.remove(&call.ctx, call.nodeid, call.name, AtFlags::REMOVEDIR)
    }
}

impl Passthrough {
    /// Removes a name with the flags of unlinkat(2).
    fn remove(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, flags: AtFlags) -> Result<(), Errno> {
        self.check_writable()?;
        let dir = self.inodes.get(parent)?;
        self.check_removable(&dir, name.as_bytes())?;
        if self.has_removed(ctx, &dir, name.as_bytes()) {
            return Ok(());
        }
        let pinned = self.inodes.pin_last_name(&dir.fd, name.as_bytes());
        rustix::fs::unlinkat(&dir.fd, name.as_bytes(), flags)?;
        self.journal_step("done");
        if let Some(replays) = &self.replays {
            replays.names.remove(parent, name.as_bytes());
        }
        if let Some(pinned) = pinned {
            pinned.keep();
        }
        Ok(())
    }
}
