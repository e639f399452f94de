//! The operations under the names that the server calls.

use rustix::fs::AtFlags;
use transom_wire::{
    Handle, Name, NodeId, Unique,
    attr::{AttrOut, EntryOut},
    ops::{
        copy_file_range::CopyFileRangeIn,
        create::CreateIn,
        fallocate::FallocateIn,
        flush::FlushIn,
        fsync::FsyncIn,
        ioctl::IoctlIn,
        lk::{FileLock, LkIn},
        lseek::LseekIn,
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        removemapping::RemovemappingOne,
        setattr::{SetattrIn, SetattrValid},
        setupmapping::SetupmappingIn,
        statfs::StatfsOut,
        statx::{StatxIn, StatxOut},
        write::WriteIn,
        xattr::SetxattrIn,
    },
};

use super::Passthrough;
use crate::{
    Errno,
    server::{
        Context, Dirents, DirentsPlus, End, FileSystem, GuestSlice, InitAnswer, InitOffer, IoctlReply, XattrReply,
    },
};

impl FileSystem for Passthrough {
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        self.do_init(offer)
    }

    fn destroy(&self, end: End) {
        self.do_destroy(end);
    }

    fn lookup(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        self.do_lookup(ctx, parent, name)
    }

    fn forget(&self, nodeid: NodeId, nlookup: u64) {
        self.do_forget(nodeid, nlookup);
    }

    fn getattr(&self, _: &Context<'_>, nodeid: NodeId, fh: Option<Handle>) -> Result<AttrOut, Errno> {
        self.do_getattr(nodeid, fh)
    }

    fn setattr(&self, _: &Context<'_>, nodeid: NodeId, valid: SetattrValid, arg: &SetattrIn) -> Result<AttrOut, Errno> {
        self.do_setattr(nodeid, valid, arg)
    }

    fn readlink(&self, _: &Context<'_>, nodeid: NodeId) -> Result<Vec<u8>, Errno> {
        self.do_readlink(nodeid)
    }

    fn symlink(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, target: &[u8]) -> Result<EntryOut, Errno> {
        self.do_symlink(ctx, parent, name, target)
    }

    fn mknod(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, arg: &MknodIn) -> Result<EntryOut, Errno> {
        self.do_mknod(ctx, parent, name, arg)
    }

    fn mkdir(&self, ctx: &Context<'_>, parent: NodeId, name: Name<'_>, arg: &MkdirIn) -> Result<EntryOut, Errno> {
        self.do_mkdir(ctx, parent, name, arg)
    }

    fn unlink(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.do_unlink(parent, name, AtFlags::empty())
    }

    fn rmdir(&self, _: &Context<'_>, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
        self.do_unlink(parent, name, AtFlags::REMOVEDIR)
    }

    fn rename(
        &self,
        _: &Context<'_>,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        self.do_rename(from, to, flags)
    }

    fn link(&self, _: &Context<'_>, old: NodeId, parent: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        self.do_link(old, parent, name)
    }

    fn open(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &OpenIn) -> Result<OpenOut, Errno> {
        self.do_open(ctx, nodeid, arg)
    }

    fn read(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
        self.do_read(ctx, arg, data)
    }

    fn write(&self, ctx: &Context<'_>, _: NodeId, arg: &WriteIn, data: &[GuestSlice<'_>]) -> Result<u32, Errno> {
        self.do_write(ctx, arg, data)
    }

    fn statfs(&self, _: &Context<'_>, nodeid: NodeId) -> Result<StatfsOut, Errno> {
        self.do_statfs(nodeid)
    }

    fn release(&self, _: &Context<'_>, _: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        self.do_release(arg);
        Ok(())
    }

    fn fsync(&self, ctx: &Context<'_>, _: NodeId, arg: &FsyncIn) -> Result<(), Errno> {
        self.do_fsync(ctx, arg)
    }

    fn setxattr(
        &self,
        _: &Context<'_>,
        nodeid: NodeId,
        name: &[u8],
        value: &[u8],
        arg: &SetxattrIn,
    ) -> Result<(), Errno> {
        self.do_setxattr(nodeid, name, value, arg)
    }

    fn getxattr(&self, _: &Context<'_>, nodeid: NodeId, name: &[u8], size: u32) -> Result<XattrReply, Errno> {
        self.do_getxattr(nodeid, name, size)
    }

    fn listxattr(&self, _: &Context<'_>, nodeid: NodeId, size: u32) -> Result<XattrReply, Errno> {
        self.do_listxattr(nodeid, size)
    }

    fn removexattr(&self, _: &Context<'_>, nodeid: NodeId, name: &[u8]) -> Result<(), Errno> {
        self.do_removexattr(nodeid, name)
    }

    fn flush(&self, _: &Context<'_>, _: NodeId, arg: &FlushIn) -> Result<(), Errno> {
        self.do_flush(arg)
    }

    fn opendir(&self, _: &Context<'_>, nodeid: NodeId, _: &OpenIn) -> Result<OpenOut, Errno> {
        self.do_opendir(nodeid)
    }

    fn readdir(&self, ctx: &Context<'_>, nodeid: NodeId, arg: &ReadIn, entries: &mut Dirents) -> Result<(), Errno> {
        self.do_readdir(ctx, nodeid, arg, entries)
    }

    fn readdirplus(
        &self,
        ctx: &Context<'_>,
        nodeid: NodeId,
        arg: &ReadIn,
        entries: &mut DirentsPlus,
    ) -> Result<(), Errno> {
        self.do_readdirplus(ctx, nodeid, arg, entries)
    }

    fn releasedir(&self, _: &Context<'_>, _: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        self.do_release(arg);
        Ok(())
    }

    fn fsyncdir(&self, _: &Context<'_>, _: NodeId, arg: &FsyncIn) -> Result<(), Errno> {
        self.do_fsyncdir(arg)
    }

    fn getlk(&self, _: &Context<'_>, _: NodeId, arg: &LkIn) -> Result<FileLock, Errno> {
        self.do_getlk(arg)
    }

    fn setlk(&self, ctx: &Context<'_>, _: NodeId, arg: &LkIn) -> Result<(), Errno> {
        self.do_setlk(ctx, arg, false)
    }

    fn setlkw(&self, ctx: &Context<'_>, _: NodeId, arg: &LkIn) -> Result<(), Errno> {
        self.do_setlk(ctx, arg, true)
    }

    fn access(&self, ctx: &Context<'_>, nodeid: NodeId, mask: u32) -> Result<(), Errno> {
        self.do_access(ctx, nodeid, mask)
    }

    fn create(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        arg: &CreateIn,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        self.do_create(ctx, parent, name, arg)
    }

    fn interrupt(&self, unique: Unique) {
        self.do_interrupt(unique);
    }

    fn interrupt_all(&self) {
        self.do_interrupt_all();
    }

    fn fallocate(&self, _: &Context<'_>, _: NodeId, arg: &FallocateIn) -> Result<(), Errno> {
        self.do_fallocate(arg)
    }

    fn lseek(&self, _: &Context<'_>, _: NodeId, arg: &LseekIn) -> Result<u64, Errno> {
        self.do_lseek(arg)
    }

    fn copy_file_range(&self, _: &Context<'_>, _: NodeId, arg: &CopyFileRangeIn) -> Result<u64, Errno> {
        self.do_copy_file_range(arg)
    }

    fn setupmapping(&self, _: &Context<'_>, nodeid: NodeId, arg: &SetupmappingIn) -> Result<(), Errno> {
        self.do_setupmapping(nodeid, arg)
    }

    fn removemapping(&self, _: &Context<'_>, _: NodeId, ranges: &[RemovemappingOne]) -> Result<(), Errno> {
        self.do_removemapping(ranges)
    }

    fn syncfs(&self, _: &Context<'_>, nodeid: NodeId) -> Result<(), Errno> {
        self.do_syncfs(nodeid)
    }

    fn tmpfile(&self, ctx: &Context<'_>, parent: NodeId, arg: &CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        self.do_tmpfile(ctx, parent, arg)
    }

    fn statx(&self, _: &Context<'_>, nodeid: NodeId, arg: &StatxIn) -> Result<StatxOut, Errno> {
        self.do_statx(nodeid, arg)
    }

    fn ioctl(&self, ctx: &Context<'_>, _: NodeId, arg: &IoctlIn, data: &[u8]) -> Result<IoctlReply, Errno> {
        self.do_ioctl(ctx, arg, data)
    }
}
