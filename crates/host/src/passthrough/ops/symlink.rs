//! SYMLINK.

use rustix::fs::AtFlags;
use transom_wire::{attr::EntryOut, operation::Symlink};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Symlink> for Passthrough {
    /// Stores the target unchecked: it concerns only the guest, and nothing here ever follows it.
    fn serve(&self, call: Call<'_, Symlink>) -> Result<EntryOut, Errno> {
        let (ctx, parent, (name, target)) = (&call.ctx, call.nodeid, call.name);
        self.check_writable()?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        self.check_creatable(&dir, name.as_bytes())?;
        if !self.has_made(ctx, &dir, name.as_bytes())? {
            let _creator = self.creator(ctx, 0)?;
            rustix::fs::symlinkat(target, &dir.fd, name.as_bytes())?;
            self.journal_step("done");
        }
        self.created(ctx, parent, &dir, name.as_bytes(), AtFlags::empty())
    }
}
