//! Open directories.

use transom_host::{
    Errno,
    server::{Call, Serve},
};
use transom_wire::{
    attr::EntryOut,
    operation::{Fsyncdir, Opendir, Readdir, Readdirplus, Releasedir},
    ops::open::OpenOut,
};

use crate::memfs::MemFs;

impl Serve<Opendir> for MemFs {
    fn serve(&self, call: Call<'_, Opendir>) -> Result<OpenOut, Errno> {
        let (nodeid, arg) = (call.nodeid, &call.arg);
        let mut state = self.lock();
        state.tree.directory(nodeid.0)?;
        state.handles.check_room()?;
        state.open(nodeid.0, true, arg.flags.get())
    }
}

impl Serve<Readdir> for MemFs {
    fn serve(&self, call: Call<'_, Readdir>) -> Result<(), Errno> {
        let (ctx, arg, entries) = (&call.ctx, &call.arg, call.out);
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
}

impl Serve<Readdirplus> for MemFs {
    fn serve(&self, call: Call<'_, Readdirplus>) -> Result<(), Errno> {
        let (ctx, arg, entries) = (&call.ctx, &call.arg, call.out);
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
}

impl Serve<Releasedir> for MemFs {
    fn serve(&self, call: Call<'_, Releasedir>) -> Result<(), Errno> {
        let arg = &call.arg;
        self.lock().close(arg.fh.get(), true)
    }
}

impl Serve<Fsyncdir> for MemFs {
    fn serve(&self, call: Call<'_, Fsyncdir>) -> Result<(), Errno> {
        let arg = &call.arg;
        self.lock().handles.get(arg.fh.get(), true).map(drop)
    }
}
