//! LINK.

use std::os::fd::AsFd;

use transom_wire::attr::EntryOut;

use crate::{
    Errno,
    operation::Link,
    passthrough::{Passthrough, inodes::InodeFd},
    server::{Call, Serve},
};

impl Serve<Link> for Passthrough {
    fn serve(&self, call: Call<'_, Link>) -> Result<EntryOut, Errno> {
        let (old, parent, name) = (call.arg.oldnodeid.into(), call.nodeid, call.name);
        self.check_writable()?;
        if self.config.is_upper_layer {
            return Err(Errno::PERM);
        }
        // A path leads to it: after ESTALE, Linux looks for the file that has the name by now.
        let (inode, dir) = (self.inodes.get(old)?, self.inodes.get(parent)?);
        self.check_creatable(&dir, name.as_bytes())?;
        if !self.has_linked(&call.ctx, &inode, &dir, name.as_bytes())? {
            self.proc_fds.link(&inode.fd, &dir.fd, name.as_bytes())?;
            self.journal_step("done");
        }
        let entry = self.admit(parent, &dir, name.as_bytes(), InodeFd::Borrowed(inode.fd.as_fd()))?;
        // A file that was created without a name now has one.
        self.inodes.unpin(old);
        Ok(entry)
    }
}
