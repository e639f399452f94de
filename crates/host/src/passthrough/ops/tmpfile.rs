//! TMPFILE.

use std::os::fd::AsFd;

use rustix::fs::OFlags;
use transom_wire::{NodeId, operation::Tmpfile, ops::create::CreateOut};

use crate::{
    Errno,
    passthrough::{Passthrough, creator::permissions, inodes::InodeFd, ops::open::open_out},
    server::{Call, Serve},
    sysfd::path,
};

impl Serve<Tmpfile> for Passthrough {
    fn serve(&self, call: Call<'_, Tmpfile>) -> Result<CreateOut, Errno> {
        let (ctx, parent, arg) = (&call.ctx, call.nodeid, &call.arg);
        self.check_writable()?;
        if self.config.is_upper_layer {
            return Err(Errno::NOSYS);
        }
        let guest = OFlags::from_bits_retain(arg.flags.get());
        self.check_open_mode(guest)?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        let _turn = self.quota_turn()?;
        let slot = self.handles.reserve()?;
        self.inodes.balance();
        // With O_EXCL, the file can never be given a name.
        let flags = (self.host_flags(guest) - OFlags::TRUNC) | OFlags::TMPFILE | (guest & OFlags::EXCL);
        let fd = self.inodes.with_room(|| {
            let _creator = self.creator(ctx, arg.umask.get())?;
            path::open_beneath(&dir.fd, c".", flags, permissions(arg.mode.get()))
        })?;
        self.label(ctx, &fd)?;
        let entry = self.admit(parent, &dir, b"", InodeFd::Borrowed(fd.as_fd()))?;
        let nodeid = NodeId::from(entry.nodeid);
        let open_flags = self.open_flags(nodeid, &fd, guest);
        // Without a name, a descriptor is the only reference to the inode.
        let pinned = self.inodes.with_room(|| self.proc_fds.reopen(&fd, OFlags::PATH));
        let added = pinned.and_then(|path_fd| {
            self.inodes.pin_nameless(nodeid, path_fd)?;
            self.handles.add_file(slot, nodeid, fd)
        });
        let fh = added.inspect_err(|_| self.forget(nodeid, 1))?;
        self.note_open(fh, nodeid, guest);
        self.note_quota_open(fh);
        Ok(CreateOut { entry, open: open_out(fh, open_flags) })
    }
}
