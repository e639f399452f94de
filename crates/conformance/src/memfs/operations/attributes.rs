//! Attributes and extended attributes.

use transom_host::{
    Errno,
    server::{Call, Serve, XattrReply},
};
use transom_wire::{
    attr::AttrOut,
    limits::NAME_LEN_MAX,
    operation::{Access, Getattr, Getxattr, Listxattr, Removexattr, Setattr, Setxattr, Statfs, Statx},
    ops::{
        setattr::SetattrValid,
        statfs::StatfsOut,
        statx::{Statx as StatxFields, StatxOut},
    },
};

use crate::memfs::{MemFs, tree::TYPE_MASK};

const XATTR_CREATE: u32 = libc::XATTR_CREATE as u32;
const XATTR_REPLACE: u32 = libc::XATTR_REPLACE as u32;

impl Serve<Getattr> for MemFs {
    fn serve(&self, call: Call<'_, Getattr>) -> Result<AttrOut, Errno> {
        let (nodeid, fh) = (call.nodeid, call.arg.handle());
        let state = self.lock();
        let nodeid = match fh {
            Some(fh) => state.handles.get(fh.0, false).or_else(|_| state.handles.get(fh.0, true))?.nodeid,
            None => nodeid.0,
        };
        state.tree.attr_out(nodeid)
    }
}

impl Serve<Setattr> for MemFs {
    fn serve(&self, call: Call<'_, Setattr>) -> Result<AttrOut, Errno> {
        let (nodeid, valid, arg) = (call.nodeid, call.arg.valid().ok_or(Errno::INVAL)?, &call.arg);
        let state = &mut *self.lock();
        let nodeid = match valid.contains(SetattrValid::FH) {
            true => state.handles.get(arg.fh.get(), false)?.to_write()?,
            false => nodeid.0,
        };
        if valid.contains(SetattrValid::SIZE) {
            state.tree.truncate(nodeid, arg.size.get())?;
        }
        let now = state.tree.now();
        state.tree.inode_mut(nodeid)?.set_attributes(valid, arg, now);
        state.tree.attr_out(nodeid)
    }
}

impl Serve<Statfs> for MemFs {
    fn serve(&self, _: Call<'_, Statfs>) -> Result<StatfsOut, Errno> {
        let tree = &self.lock().tree;
        let (limits, free) = (tree.limits(), tree.limits().bytes - tree.bytes());
        Ok(StatfsOut {
            blocks: (limits.bytes / 4096).into(),
            bfree: (free / 4096).into(),
            bavail: (free / 4096).into(),
            files: (limits.inodes as u64).into(),
            ffree: ((limits.inodes - tree.inode_count()) as u64).into(),
            bsize: 4096.into(),
            namelen: (NAME_LEN_MAX as u32).into(),
            frsize: 4096.into(),
            padding: 0.into(),
            spare: Default::default(),
        })
    }
}

impl Serve<Setxattr> for MemFs {
    fn serve(&self, call: Call<'_, Setxattr>) -> Result<(), Errno> {
        let (nodeid, name, value, arg) = (call.nodeid, call.name, call.rest, &call.arg);
        let tree = &mut self.lock().tree;
        let old_len = tree.inode(nodeid.0)?.xattrs.get(name).map(|value| (name.len() + value.len()) as u64);
        match (arg.flags.get(), old_len) {
            (XATTR_CREATE, Some(_)) => return Err(Errno::EXIST),
            (XATTR_REPLACE, None) => return Err(Errno::NODATA),
            (0 | XATTR_CREATE | XATTR_REPLACE, _) => {}
            _ => return Err(Errno::INVAL),
        }
        tree.charge((name.len() + value.len()) as u64)?;
        tree.discharge(old_len.unwrap_or(0));
        let now = tree.now();
        let inode = tree.inode_mut(nodeid.0)?;
        inode.xattrs.insert(name.to_vec(), value.to_vec());
        inode.ctime = now;
        Ok(())
    }
}

impl Serve<Getxattr> for MemFs {
    fn serve(&self, call: Call<'_, Getxattr>) -> Result<XattrReply, Errno> {
        let (nodeid, name, size) = (call.nodeid, call.name, call.arg.size.get());
        let state = self.lock();
        let value = state.tree.inode(nodeid.0)?.xattrs.get(name).ok_or(Errno::NODATA)?;
        sized(value.clone(), size)
    }
}

impl Serve<Listxattr> for MemFs {
    fn serve(&self, call: Call<'_, Listxattr>) -> Result<XattrReply, Errno> {
        let (nodeid, size) = (call.nodeid, call.arg.size.get());
        let state = self.lock();
        let names = state.tree.inode(nodeid.0)?.xattrs.keys();
        sized(names.flat_map(|name| name.iter().copied().chain([0])).collect(), size)
    }
}

impl Serve<Removexattr> for MemFs {
    fn serve(&self, call: Call<'_, Removexattr>) -> Result<(), Errno> {
        let (nodeid, name) = (call.nodeid, call.name);
        let tree = &mut self.lock().tree;
        let now = tree.now();
        let inode = tree.inode_mut(nodeid.0)?;
        let value = inode.xattrs.remove(name).ok_or(Errno::NODATA)?;
        inode.ctime = now;
        tree.discharge((name.len() + value.len()) as u64);
        Ok(())
    }
}

impl Serve<Access> for MemFs {
    fn serve(&self, call: Call<'_, Access>) -> Result<(), Errno> {
        let (nodeid, mask) = (call.nodeid, call.arg.mask.get());
        let mode = self.lock().tree.inode(nodeid.0)?.mode;
        // The superuser lacks nothing but the right to run what nobody may run.
        let may_run = mode & TYPE_MASK == libc::S_IFDIR || mode & 0o111 != 0;
        if mask as i32 & libc::X_OK != 0 && !may_run { Err(Errno::ACCESS) } else { Ok(()) }
    }
}

impl Serve<Statx> for MemFs {
    fn serve(&self, call: Call<'_, Statx>) -> Result<StatxOut, Errno> {
        let nodeid = call.nodeid;
        let state = self.lock();
        let attr = state.tree.inode(nodeid.0)?.attr();
        let stat = StatxFields {
            mask: libc::STATX_BASIC_STATS.into(),
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: (attr.mode.get() as u16).into(),
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            ..StatxFields::default()
        };
        Ok(StatxOut { stat, ..StatxOut::default() })
    }
}

/// `bytes`, or their number where `size` is 0. Errors: ERANGE where `size` is too small.
fn sized(bytes: Vec<u8>, size: u32) -> Result<XattrReply, Errno> {
    match size {
        0 => Ok(XattrReply::Size(bytes.len() as u32)),
        size if bytes.len() > size as usize => Err(Errno::RANGE),
        _ => Ok(XattrReply::Bytes(bytes)),
    }
}
