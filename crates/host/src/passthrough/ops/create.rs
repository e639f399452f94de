//! CREATE.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, OFlags};
use transom_wire::{
    Name, NodeId,
    attr::EntryOut,
    ops::{create::CreateIn, open::OpenOut},
};

use crate::{
    Errno,
    passthrough::{
        Passthrough,
        creator::{permissions, remove_again},
        inodes::{Inode, Sight},
        ops::open::open_out,
    },
    server::{Context, Patience},
    sysfd::path,
};

/// How often a name may appear and vanish again under our eyes before the guest is told to look anew.
const RACES_MAX: usize = 16;

impl Passthrough {
    pub(in crate::passthrough) fn do_create(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        arg: &CreateIn,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        self.check_writable()?;
        let flags = OFlags::from_bits_retain(arg.flags.get());
        self.check_open_mode(flags)?;
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        let slot = self.handles.reserve()?;
        self.inodes.balance();
        let (entry, fd) = self.create_or_open(ctx, parent, &dir, name.as_bytes(), arg)?;
        let nodeid = NodeId::from(entry.nodeid);
        let open_flags = self.open_flags(nodeid, &fd, flags);
        let fh = self.handles.add_file(slot, nodeid, fd).inspect_err(|_| self.do_forget(nodeid, 1))?;
        Ok((entry, open_out(fh, open_flags)))
    }

    /// Creates the file for the caller or, without `O_EXCL`, opens the one that is there as OPEN would.
    fn create_or_open(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        arg: &CreateIn,
    ) -> Result<(EntryOut, OwnedFd), Errno> {
        let flags = OFlags::from_bits_retain(arg.flags.get());
        for _ in 0..RACES_MAX {
            match self.create_new(ctx, dir, name, arg) {
                Ok(fd) => {
                    self.label(ctx, &fd).inspect_err(|_| remove_again(dir, name, AtFlags::empty()))?;
                    let entry = self.admit(parent, dir, name, Sight::Borrowed(fd.as_fd()))?;
                    return Ok((entry, fd));
                }
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                Err(errno) => return Err(errno),
            }
            let entry = match self.entry_of(parent, dir, name, Patience::MayBlock) {
                Err(Errno::NOENT) => continue,
                entry => entry?,
            };
            let opened = self.open_existing(&entry, flags, self.open_kills_set_id(ctx, flags, arg.open_flags.get()));
            let nodeid = NodeId::from(entry.nodeid);
            return opened.map(|fd| (entry, fd)).inspect_err(|_| self.do_forget(nodeid, 1));
        }
        Err(Errno::STALE)
    }

    fn create_new(&self, ctx: &Context<'_>, dir: &Inode, name: &[u8], arg: &CreateIn) -> Result<OwnedFd, Errno> {
        let flags = self.host_flags(OFlags::from_bits_retain(arg.flags.get())) - OFlags::TRUNC;
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        self.inodes.with_room(|| {
            let _creator = self.creator(ctx, arg.umask.get())?;
            path::open_beneath(&dir.fd, name, flags, permissions(arg.mode.get()))
        })
    }

    /// Errors: ESTALE where the name does not stand for a regular file: the guest took it for absent, and looks anew.
    fn open_existing(&self, entry: &EntryOut, flags: OFlags, kills_set_id: bool) -> Result<OwnedFd, Errno> {
        if FileType::from_raw_mode(entry.attr.mode.get()) != FileType::RegularFile {
            return Err(Errno::STALE);
        }
        let _guard = kills_set_id.then(|| self.credentials.without_fsetid()).transpose()?;
        self.open_inode(entry.nodeid.into(), flags)
    }
}
