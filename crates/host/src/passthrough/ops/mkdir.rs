//! MKDIR.

use rustix::fs::AtFlags;
use transom_wire::{Name, NodeId, attr::EntryOut, ops::mkdir::MkdirIn};

use crate::{
    Errno,
    passthrough::{Passthrough, creator::permissions},
    server::Context,
};

impl Passthrough {
    pub(in crate::passthrough) fn do_mkdir(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        arg: &MkdirIn,
    ) -> Result<EntryOut, Errno> {
        self.check_writable()?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        {
            let _creator = self.creator(ctx, arg.umask.get())?;
            rustix::fs::mkdirat(&dir.fd, name.as_bytes(), permissions(arg.mode.get()))?;
        }
        self.created(ctx, parent, &dir, name.as_bytes(), AtFlags::REMOVEDIR)
    }
}
