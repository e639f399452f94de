//! Names and inodes.

use transom_host::{
    Errno,
    server::{Call, Serve},
};
use transom_wire::{
    Name, NodeId,
    attr::EntryOut,
    operation::{BatchForget, Forget, Link, Lookup, Mkdir, Mknod, Readlink, Rename, Rename2, Rmdir, Symlink, Unlink},
};

use crate::memfs::{
    MemFs,
    tree::{Content, PERMISSIONS, TYPE_MASK},
};

impl Serve<Lookup> for MemFs {
    fn serve(&self, call: Call<'_, Lookup>) -> Result<EntryOut, Errno> {
        let (ctx, parent, name) = (&call.ctx, call.nodeid, call.name);
        self.defer(ctx)?;
        let tree = &mut self.lock().tree;
        let nodeid = tree.find(parent.0, name.as_bytes())?;
        tree.entry(nodeid)
    }
}

impl Serve<Forget> for MemFs {
    fn serve(&self, call: Call<'_, Forget>) -> Result<(), Errno> {
        self.forget(call.nodeid, call.arg.nlookup.get());
        Ok(())
    }
}

impl Serve<BatchForget> for MemFs {
    fn serve(&self, call: Call<'_, BatchForget>) -> Result<(), Errno> {
        call.rest.iter().for_each(|one| self.forget(one.nodeid.into(), one.nlookup.get()));
        Ok(())
    }
}

impl MemFs {
    fn forget(&self, nodeid: NodeId, nlookup: u64) {
        let tree = &mut self.lock().tree;
        if let Ok(inode) = tree.inode_mut(nodeid.0) {
            inode.lookups = inode.lookups.saturating_sub(nlookup);
            tree.drop_unused(nodeid.0);
        }
    }
}

impl Serve<Readlink> for MemFs {
    fn serve(&self, call: Call<'_, Readlink>) -> Result<Vec<u8>, Errno> {
        let nodeid = call.nodeid;
        match &self.lock().tree.inode(nodeid.0)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }
}

impl Serve<Symlink> for MemFs {
    fn serve(&self, call: Call<'_, Symlink>) -> Result<EntryOut, Errno> {
        let (ctx, parent, (name, target)) = (&call.ctx, call.nodeid, call.name);
        let tree = &mut self.lock().tree;
        let content = Content::Symlink(target.to_vec());
        let nodeid = tree.make(parent.0, name.as_bytes(), libc::S_IFLNK | 0o777, (ctx.uid, ctx.gid), content)?;
        tree.entry(nodeid)
    }
}

impl Serve<Mknod> for MemFs {
    fn serve(&self, call: Call<'_, Mknod>) -> Result<EntryOut, Errno> {
        let (ctx, parent, name, arg) = (&call.ctx, call.nodeid, call.name, &call.arg);
        let tree = &mut self.lock().tree;
        let (mode, owner) = (arg.mode.get() & (TYPE_MASK | PERMISSIONS), (ctx.uid, ctx.gid));
        let (mode, content) = match mode & TYPE_MASK {
            0 => (mode | libc::S_IFREG, Content::File(Vec::new())),
            libc::S_IFREG => (mode, Content::File(Vec::new())),
            libc::S_IFCHR | libc::S_IFBLK | libc::S_IFIFO | libc::S_IFSOCK => (mode, Content::Special),
            _ => return Err(Errno::INVAL),
        };
        let nodeid = tree.make(parent.0, name.as_bytes(), mode, owner, content)?;
        tree.inode_mut(nodeid)?.rdev = arg.rdev.get();
        tree.entry(nodeid)
    }
}

impl Serve<Mkdir> for MemFs {
    fn serve(&self, call: Call<'_, Mkdir>) -> Result<EntryOut, Errno> {
        let (ctx, parent, name, arg) = (&call.ctx, call.nodeid, call.name, &call.arg);
        let tree = &mut self.lock().tree;
        let mode = libc::S_IFDIR | arg.mode.get() & PERMISSIONS;
        let nodeid = tree.make_directory(parent.0, name.as_bytes(), mode, (ctx.uid, ctx.gid))?;
        tree.entry(nodeid)
    }
}

impl Serve<Unlink> for MemFs {
    fn serve(&self, call: Call<'_, Unlink>) -> Result<(), Errno> {
        let (parent, name) = (call.nodeid, call.name);
        self.lock().tree.unlink(parent.0, name.as_bytes())
    }
}

impl Serve<Rmdir> for MemFs {
    fn serve(&self, call: Call<'_, Rmdir>) -> Result<(), Errno> {
        let (parent, name) = (call.nodeid, call.name);
        self.lock().tree.rmdir(parent.0, name.as_bytes())
    }
}

impl Serve<Rename> for MemFs {
    fn serve(&self, call: Call<'_, Rename>) -> Result<(), Errno> {
        self.rename(call.nodeid, call.arg.newdir.get(), call.name, 0)
    }
}

impl Serve<Rename2> for MemFs {
    fn serve(&self, call: Call<'_, Rename2>) -> Result<(), Errno> {
        self.rename(call.nodeid, call.arg.newdir.get(), call.name, call.arg.flags.get())
    }
}

impl MemFs {
    fn rename(
        &self,
        parent: NodeId,
        new_parent: u64,
        (name, new_name): (Name<'_>, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        self.lock().tree.rename((parent.0, name.as_bytes()), (new_parent, new_name.as_bytes()), flags)
    }
}

impl Serve<Link> for MemFs {
    fn serve(&self, call: Call<'_, Link>) -> Result<EntryOut, Errno> {
        let (old, parent, name) = (NodeId::from(call.arg.oldnodeid), call.nodeid, call.name);
        let tree = &mut self.lock().tree;
        tree.link(old.0, parent.0, name.as_bytes())?;
        tree.entry(old.0)
    }
}
