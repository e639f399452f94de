//! The operations under the names that the server calls.

use transom_wire::{
    Handle, Name, NodeId,
    attr::{AttrOut, EntryOut},
    ops::{
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        statfs::StatfsOut,
    },
};

use super::Passthrough;
use crate::{
    Errno,
    server::{Context, Dirents, DirentsPlus, FileSystem, GuestSlice, InitAnswer, InitOffer},
};

impl FileSystem for Passthrough {
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        self.do_init(offer)
    }

    fn destroy(&self) {
        self.do_destroy();
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

    fn open(&self, _: &Context<'_>, nodeid: NodeId, arg: &OpenIn) -> Result<OpenOut, Errno> {
        self.do_open(nodeid, arg)
    }

    fn read(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
        self.do_read(ctx, arg, data)
    }

    fn statfs(&self, _: &Context<'_>, nodeid: NodeId) -> Result<StatfsOut, Errno> {
        self.do_statfs(nodeid)
    }

    fn release(&self, _: &Context<'_>, _: NodeId, arg: &ReleaseIn) -> Result<(), Errno> {
        self.do_release(arg);
        Ok(())
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
}
