//! MKDIR.

use rustix::fs::AtFlags;
use transom_wire::attr::EntryOut;

use crate::{
    Errno,
    operation::Mkdir,
    passthrough::{Passthrough, creator::permissions},
    server::{Call, Serve},
};

impl Serve<Mkdir> for Passthrough {
    fn serve(&self, call: Call<'_, Mkdir>) -> Result<EntryOut, Errno> {
        let (ctx, parent, name, arg) = (&call.ctx, call.nodeid, call.name, &call.arg);
        self.check_writable()?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        self.check_creatable(&dir, name.as_bytes())?;
        if !self.has_made(ctx, &dir, name.as_bytes())? {
            let _creator = self.creator(ctx, arg.umask.get())?;
            rustix::fs::mkdirat(&dir.fd, name.as_bytes(), permissions(arg.mode.get()))?;
            self.journal_step("done");
        }
        self.created(ctx, parent, &dir, name.as_bytes(), AtFlags::REMOVEDIR)
    }
}
