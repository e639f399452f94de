//! RENAME and RENAME2.

use rustix::fs::RenameFlags;
use transom_wire::{
    Name, NodeId,
    operation::{Rename, Rename2},
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Context, Serve},
};

impl Serve<Rename> for Passthrough {
    fn serve(&self, call: Call<'_, Rename>) -> Result<(), Errno> {
        let (name, new_name) = call.name;
        self.rename(&call.ctx, (call.nodeid, name), (call.arg.newdir.into(), new_name), 0)
    }
}

impl Serve<Rename2> for Passthrough {
    fn serve(&self, call: Call<'_, Rename2>) -> Result<(), Errno> {
        let (name, new_name) = call.name;
        self.rename(&call.ctx, (call.nodeid, name), (call.arg.newdir.into(), new_name), call.arg.flags.get())
    }
}

impl Passthrough {
    /// Renames with the flags of renameat2(2).
    ///
    /// # Errors
    ///
    /// EINVAL for an unknown flag.
    fn rename(
        &self,
        ctx: &Context<'_>,
        (parent, name): (NodeId, Name<'_>),
        (new_parent, new_name): (NodeId, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        self.check_writable()?;
        const KNOWN: RenameFlags = RenameFlags::NOREPLACE.union(RenameFlags::EXCHANGE).union(RenameFlags::WHITEOUT);
        let flags = RenameFlags::from_bits_retain(flags);
        if !KNOWN.contains(flags) {
            return Err(Errno::INVAL);
        }
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let (dir, new_dir) = (self.inodes.get(parent)?, self.inodes.get(new_parent)?);
        self.check_removable(&dir, name)?;
        self.check_creatable(&new_dir, new_name)?;
        self.check_removable(&new_dir, new_name)?;
        if self.has_renamed(ctx, (&dir, name), (&new_dir, new_name), flags)? {
            return Ok(());
        }
        let replaces = !flags.intersects(RenameFlags::NOREPLACE | RenameFlags::EXCHANGE);
        let pinned = if replaces { self.inodes.pin_last_name(&new_dir.fd, new_name) } else { None };
        if flags.is_empty() {
            rustix::fs::renameat(&dir.fd, name, &new_dir.fd, new_name)?;
        } else {
            rustix::fs::renameat_with(&dir.fd, name, &new_dir.fd, new_name, flags)?;
        }
        self.journal_step("done");
        if let Some(pinned) = pinned {
            pinned.keep();
        }
        self.renamed_in_guest((parent, name), (new_parent, new_name), flags.contains(RenameFlags::EXCHANGE));
        self.inodes.note_name(new_parent, &new_dir.fd, new_name);
        if flags.contains(RenameFlags::EXCHANGE) {
            self.inodes.note_name(parent, &dir.fd, name);
        }
        Ok(())
    }
}
