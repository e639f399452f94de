//! Every operation, on the tree.

use transom_host::{
    Errno,
    server::{Context, Dirents, DirentsPlus, End, FileSystem, GuestSlice, InitAnswer, InitOffer, Patience, XattrReply},
};
use transom_wire::{
    Handle, Name, NodeId, Unique,
    attr::{AttrOut, EntryOut},
    limits::{DATA_LEN_MAX, NAME_LEN_MAX},
    ops::{
        copy_file_range::CopyFileRangeIn,
        create::CreateIn,
        fallocate::FallocateIn,
        flush::FlushIn,
        fsync::FsyncIn,
        init::InitFlags,
        lk::{FileLock, LkIn},
        lseek::LseekIn,
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        setattr::{SetattrIn, SetattrValid},
        statfs::StatfsOut,
        statx::{Statx, StatxIn, StatxOut},
        write::{WriteFlags, WriteIn},
        xattr::SetxattrIn,
    },
};

use super::{
    MemFs,
    locks::{self, Wanted},
    tree::{Content, PERMISSIONS, TYPE_MASK},
};

const XATTR_CREATE: u32 = libc::XATTR_CREATE as u32;
const XATTR_REPLACE: u32 = libc::XATTR_REPLACE as u32;

impl FileSystem for MemFs {
    fn init(&self, _: &InitOffer) -> Result<InitAnswer, Errno> {
        Ok(InitAnswer {
            flags: InitFlags::all() & !(InitFlags::WRITEBACK_CACHE | InitFlags::PASSTHROUGH | InitFlags::OVER_IO_URING),
            max_readahead: DATA_LEN_MAX,
            max_background: 64,
            congestion_threshold: 48,
            max_write: DATA_LEN_MAX,
            time_gran: 1,
            max_pages: (DATA_LEN_MAX / 4096) as u16,
            map_alignment: 0,
        })
    }

    fn destroy(&self, _: End) {
        let mut state = self.lock();
        state.handles.clear();
        state.tree.end_session();
        state.waiting.interrupt(|_| true);
        self.changed.notify_all();
    }

    fn lookup(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        self.defer(ctx)?;
        let tree = &mut self.lock().tree;
        let nodeid = tree.find(parent.0, name.as_bytes())?;
        tree.entry(nodeid)
    }

    fn forget(&self, nodeid: NodeId, nlookup: u64) {
        let tree = &mut self.lock().tree;
        if let Ok(inode) = tree.inode_mut(nodeid.0) {
            inode.lookups = inode.lookups.saturating_sub(nlookup);
            tree.drop_unused(nodeid.0);
        }
    }

    fn getattr(&self, _: &Context<'_>, nodeid: NodeId, fh: Option<Handle>) -> Result<AttrOut, Errno> {
        let state = self.lock();
        let nodeid = match fh {
            Some(fh) => state.handles.get(fh.0, false).or_else(|_| state.handles.get(fh.0, true))?.nodeid,
            None => nodeid.0,
        };
        state.tree.attr_out(nodeid)
    }

    fn setattr(&self, _: &Context<'_>, nodeid: NodeId, valid: SetattrValid, arg: &SetattrIn) -> Result<AttrOut, Errno> {
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

    fn readlink(&self, _: &Context<'_>, nodeid: NodeId) -> Result<Vec<u8>, Errno> {
        match &self.lock().tree.inode(nodeid.0)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::INVAL),
        }
    }

    fn symlink(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, target: &[u8]) -> Result<EntryOut, Errno> {
        let tree = &mut self.lock().tree;
        let content = Content::Symlink(target.to_vec());
        let nodeid = tree.make(parent.0, name.as_bytes(), libc::S_IFLNK | 0o777, (ctx.uid, ctx.gid), content)?;
        tree.entry(nodeid)
    }

    fn mknod(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, arg: &MknodIn) -> Result<EntryOut, Errno> {
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

    fn mkdir(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, arg: &MkdirIn) -> Result<EntryOut, Errno> {
        let tree = &mut self.lock().tree;
        let mode = libc::S_IFDIR | arg.mode.get() & PERMISSIONS;
        let nodeid = tree.make_directory(parent.0, name.as_bytes(), mode, (ctx.uid, ctx.gid))?;
        tree.entry(nodeid)
    }

    fn unlink(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.lock().tree.unlink(parent.0, name.as_bytes())
    }

    fn rmdir(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.lock().tree.rmdir(parent.0, name.as_bytes())
    }

    fn rename(
        &self,
        _: &Context<'_>,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        self.lock().tree.rename((from.0.0, from.1.as_bytes()), (to.0.0, to.1.as_bytes()), flags)
    }

    fn link(&self, _: &Context<'_>, old: NodeId, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        let tree = &mut self.lock().tree;
        tree.link(old.0, parent.0, name.as_bytes())?;
        tree.entry(old.0)
    }

    fn open(&self, _: &Context<'_>, nodeid: NodeId, arg: &OpenIn) -> Result<OpenOut, Errno> {
        let mut state = self.lock();
        state.tree.file_mut(nodeid.0)?;
        state.handles.check_room()?;
        if arg.flags.get() as i32 & libc::O_TRUNC != 0 {
            state.tree.truncate(nodeid.0, 0)?;
        }
        state.open(nodeid.0, false, arg.flags.get())
    }

    fn read(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
        self.defer(ctx)?;
        let state = &mut *self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.to_read()?;
        state.tree.read(nodeid, arg.offset.get(), data)
    }

    fn write(&self, ctx: &Context<'_>, _: NodeId, arg: &WriteIn, data: &[GuestSlice<'_>]) -> Result<u32, Errno> {
        self.defer(ctx)?;
        let state = &mut *self.lock();
        let opened = state.handles.get(arg.fh.get(), false)?;
        let nodeid = opened.to_write()?;
        let offset = match opened.flags as i32 & libc::O_APPEND {
            0 => arg.offset.get(),
            _ => state.tree.inode(nodeid)?.size(),
        };
        let written = state.tree.write(nodeid, offset, data)?;
        if WriteFlags::from_bits_retain(arg.write_flags.get()).contains(WriteFlags::KILL_SUIDGID) {
            state.tree.inode_mut(nodeid)?.kill_suidgid();
        }
        Ok(written)
    }

    fn statfs(&self, _: &Context<'_>, _: NodeId) -> Result<StatfsOut, Errno> {
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

    fn release(&self, _: &Context<'_>, _: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        let mut state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        if arg.release_flags.get() != 0 {
            locks::drop_owner(&mut state.tree.inode_mut(nodeid)?.locks, arg.lock_owner.get());
            self.changed.notify_all();
        }
        state.close(arg.fh.get(), false)
    }

    fn fsync(&self, _: &Context<'_>, _: NodeId, arg: &FsyncIn) -> Result<(), Errno> {
        self.lock().handles.get(arg.fh.get(), false).map(drop)
    }

    fn setxattr(
        &self,
        _: &Context<'_>,
        nodeid: NodeId,
        name: &[u8],
        value: &[u8],
        arg: &SetxattrIn,
    ) -> Result<(), Errno> {
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

    fn getxattr(&self, _: &Context<'_>, nodeid: NodeId, name: &[u8], size: u32) -> Result<XattrReply, Errno> {
        let state = self.lock();
        let value = state.tree.inode(nodeid.0)?.xattrs.get(name).ok_or(Errno::NODATA)?;
        sized(value.clone(), size)
    }

    fn listxattr(&self, _: &Context<'_>, nodeid: NodeId, size: u32) -> Result<XattrReply, Errno> {
        let state = self.lock();
        let names = state.tree.inode(nodeid.0)?.xattrs.keys();
        sized(names.flat_map(|name| name.iter().copied().chain([0])).collect(), size)
    }

    fn removexattr(&self, _: &Context<'_>, nodeid: NodeId, name: &[u8]) -> Result<(), Errno> {
        let tree = &mut self.lock().tree;
        let now = tree.now();
        let inode = tree.inode_mut(nodeid.0)?;
        let value = inode.xattrs.remove(name).ok_or(Errno::NODATA)?;
        inode.ctime = now;
        tree.discharge((name.len() + value.len()) as u64);
        Ok(())
    }

    fn flush(&self, _: &Context<'_>, _: NodeId, arg: &FlushIn) -> Result<(), Errno> {
        let mut state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        locks::drop_owner(&mut state.tree.inode_mut(nodeid)?.locks, arg.lock_owner.get());
        self.changed.notify_all();
        Ok(())
    }

    fn opendir(&self, _: &Context<'_>, nodeid: NodeId, arg: &OpenIn) -> Result<OpenOut, Errno> {
        let mut state = self.lock();
        state.tree.directory(nodeid.0)?;
        state.handles.check_room()?;
        state.open(nodeid.0, true, arg.flags.get())
    }

    fn readdir(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, entries: &mut Dirents) -> Result<(), Errno> {
        self.defer(ctx)?;
        let state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), true)?.nodeid;
        let mut offset = arg.offset.get();
        while let Some((place, nodeid, name)) = state.next_entry(nodeid, offset)? {
            let type_ = state.tree.inode(nodeid)?.dirent_type();
            if entries.push(nodeid, place, type_, &name).is_err() {
                break;
            }
            offset = place;
        }
        Ok(())
    }

    fn readdirplus(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, entries: &mut DirentsPlus) -> Result<(), Errno> {
        self.defer(ctx)?;
        let mut state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), true)?.nodeid;
        let mut offset = arg.offset.get();
        while let Some((place, nodeid, name)) = state.next_entry(nodeid, offset)? {
            if entries.has_room(&name).is_err() {
                break;
            }
            let type_ = state.tree.inode(nodeid)?.dirent_type();
            let is_dots = name == b"." || name == b"..";
            let entry = if is_dots { EntryOut::default() } else { state.tree.entry(nodeid)? };
            entries.push(&entry, nodeid, place, type_, &name).map_err(|_| Errno::IO)?;
            offset = place;
        }
        Ok(())
    }

    fn releasedir(&self, _: &Context<'_>, _: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        self.lock().close(arg.fh.get(), true)
    }

    fn fsyncdir(&self, _: &Context<'_>, _: NodeId, arg: &FsyncIn) -> Result<(), Errno> {
        self.lock().handles.get(arg.fh.get(), true).map(drop)
    }

    fn getlk(&self, _: &Context<'_>, _: NodeId, arg: &LkIn) -> Result<FileLock, Errno> {
        let state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        let conflict = match Wanted::parse(arg)? {
            Wanted::Lock(lock) => lock.conflict(&state.tree.inode(nodeid)?.locks),
            Wanted::Unlock { .. } => return Err(Errno::INVAL),
        };
        let free = FileLock { type_: (libc::F_UNLCK as u32).into(), ..arg.lk };
        Ok(conflict.map_or(free, |lock| lock.to_wire()))
    }

    fn setlk(&self, _: &Context<'_>, _: NodeId, arg: &LkIn) -> Result<(), Errno> {
        let wanted = Wanted::parse(arg)?;
        let mut state = self.lock();
        state.set_lock(arg.fh.get(), &wanted)?;
        self.changed.notify_all();
        Ok(())
    }

    fn setlkw(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &LkIn) -> Result<(), Errno> {
        if ctx.patience == Patience::Try {
            return self.setlk(ctx, nodeid, arg);
        }
        let (wanted, unique) = (Wanted::parse(arg)?, ctx.unique.0);
        let mut state = self.lock();
        state.waiting.begin(unique);
        let result = loop {
            match state.set_lock(arg.fh.get(), &wanted) {
                Err(Errno::AGAIN) if state.waiting.is_interrupted(unique) => break Err(Errno::INTR),
                Err(Errno::AGAIN) => {
                    state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                result => break result,
            }
        };
        state.waiting.end(unique);
        self.changed.notify_all();
        result
    }

    fn access(&self, _: &Context<'_>, nodeid: NodeId, mask: u32) -> Result<(), Errno> {
        let mode = self.lock().tree.inode(nodeid.0)?.mode;
        // The superuser lacks nothing but the right to run what nobody may run.
        let may_run = mode & TYPE_MASK == libc::S_IFDIR || mode & 0o111 != 0;
        if mask as i32 & libc::X_OK != 0 && !may_run { Err(Errno::ACCESS) } else { Ok(()) }
    }

    fn create(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        arg: &CreateIn,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        let state = &mut *self.lock();
        let flags = arg.flags.get() as i32;
        state.handles.check_room()?;
        let nodeid = match state.tree.find(parent.0, name.as_bytes()) {
            Ok(_) if flags & libc::O_EXCL != 0 => return Err(Errno::EXIST),
            Ok(nodeid) => {
                state.tree.file_mut(nodeid)?;
                if flags & libc::O_TRUNC != 0 {
                    state.tree.truncate(nodeid, 0)?;
                }
                nodeid
            }
            Err(Errno::NOENT) => {
                let mode = libc::S_IFREG | arg.mode.get() & PERMISSIONS;
                let content = Content::File(Vec::new());
                state.tree.make(parent.0, name.as_bytes(), mode, (ctx.uid, ctx.gid), content)?
            }
            Err(errno) => return Err(errno),
        };
        Ok((state.tree.entry(nodeid)?, state.open(nodeid, false, arg.flags.get())?))
    }

    fn interrupt(&self, unique: Unique) {
        self.lock().waiting.interrupt(|waiting| waiting == unique.0);
        self.changed.notify_all();
    }

    fn interrupt_all(&self) {
        self.stall.change(|stalled| stalled.wakes += 1);
        self.lock().waiting.interrupt(|_| true);
        self.changed.notify_all();
    }

    fn fallocate(&self, _: &Context<'_>, _: NodeId, arg: &FallocateIn) -> Result<(), Errno> {
        let state = &mut *self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.to_write()?;
        state.tree.fallocate(nodeid, arg.offset.get(), arg.length.get(), arg.mode.get())
    }

    fn lseek(&self, _: &Context<'_>, _: NodeId, arg: &LseekIn) -> Result<u64, Errno> {
        let state = &mut *self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        state.tree.lseek(nodeid, arg.offset.get(), arg.whence.get())
    }

    fn copy_file_range(&self, _: &Context<'_>, _: NodeId, arg: &CopyFileRangeIn) -> Result<u64, Errno> {
        let state = &mut *self.lock();
        let from = state.handles.get(arg.fh_in.get(), false)?.to_read()?;
        let to = state.handles.get(arg.fh_out.get(), false)?.to_write()?;
        state.tree.copy((from, arg.off_in.get()), (to, arg.off_out.get()), arg.len.get())
    }

    fn syncfs(&self, _: &Context<'_>, _: NodeId) -> Result<(), Errno> {
        Ok(())
    }

    fn tmpfile(&self, ctx: &Context<'_>, parent: NodeId, arg: &CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        let state = &mut *self.lock();
        state.tree.directory(parent.0)?;
        state.handles.check_room()?;
        let mode = libc::S_IFREG | arg.mode.get() & PERMISSIONS;
        let nodeid = state.tree.add(mode, (ctx.uid, ctx.gid), Content::File(Vec::new()))?;
        state.tree.inode_mut(nodeid)?.is_nameless = arg.flags.get() as i32 & libc::O_EXCL == 0;
        Ok((state.tree.entry(nodeid)?, state.open(nodeid, false, arg.flags.get())?))
    }

    fn statx(&self, _: &Context<'_>, nodeid: NodeId, _: &StatxIn) -> Result<StatxOut, Errno> {
        let state = self.lock();
        let attr = state.tree.inode(nodeid.0)?.attr();
        let stat = Statx {
            mask: libc::STATX_BASIC_STATS.into(),
            blksize: attr.blksize,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: (attr.mode.get() as u16).into(),
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            ..Statx::default()
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
