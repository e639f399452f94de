//! Open files and their data.

use transom_host::{
    Errno,
    server::{Call, Serve},
};
use transom_wire::{
    operation::{
        CopyFileRange, CopyFileRange64, Create, Fallocate, Flush, Fsync, Lseek, Open, Read, Release, Syncfs, Tmpfile,
        Write,
    },
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        create::CreateOut,
        lseek::LseekOut,
        open::OpenOut,
        write::{WriteFlags, WriteOut},
    },
};

use crate::memfs::{
    MemFs,
    locks::{self},
    tree::{Content, PERMISSIONS},
};

impl Serve<Open> for MemFs {
    fn serve(&self, call: Call<'_, Open>) -> Result<OpenOut, Errno> {
        let (nodeid, arg) = (call.nodeid, &call.arg);
        let mut state = self.lock();
        state.tree.file_mut(nodeid.0)?;
        state.handles.check_room()?;
        if arg.flags.get() as i32 & libc::O_TRUNC != 0 {
            state.tree.truncate(nodeid.0, 0)?;
        }
        state.open(nodeid.0, false, arg.flags.get())
    }
}

impl Serve<Read> for MemFs {
    fn serve(&self, call: Call<'_, Read>) -> Result<usize, Errno> {
        let (ctx, arg, data) = (&call.ctx, &call.arg, call.out);
        self.defer(ctx)?;
        let state = &mut *self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.to_read()?;
        state.tree.read(nodeid, arg.offset.get(), data)
    }
}

impl Serve<Write> for MemFs {
    fn serve(&self, call: Call<'_, Write>) -> Result<WriteOut, Errno> {
        let (ctx, arg, data) = (&call.ctx, &call.arg, call.rest);
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
        Ok(WriteOut::new(written))
    }
}

impl Serve<Release> for MemFs {
    fn serve(&self, call: Call<'_, Release>) -> Result<(), Errno> {
        let arg = &call.arg;
        let mut state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        if arg.release_flags.get() != 0 {
            locks::drop_owner(&mut state.tree.inode_mut(nodeid)?.locks, arg.lock_owner.get());
            self.changed.notify_all();
        }
        state.close(arg.fh.get(), false)
    }
}

impl Serve<Fsync> for MemFs {
    fn serve(&self, call: Call<'_, Fsync>) -> Result<(), Errno> {
        let arg = &call.arg;
        self.lock().handles.get(arg.fh.get(), false).map(drop)
    }
}

impl Serve<Flush> for MemFs {
    fn serve(&self, call: Call<'_, Flush>) -> Result<(), Errno> {
        let arg = &call.arg;
        let mut state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        locks::drop_owner(&mut state.tree.inode_mut(nodeid)?.locks, arg.lock_owner.get());
        self.changed.notify_all();
        Ok(())
    }
}

impl Serve<Create> for MemFs {
    fn serve(&self, call: Call<'_, Create>) -> Result<CreateOut, Errno> {
        let (ctx, parent, name, arg) = (&call.ctx, call.nodeid, call.name, &call.arg);
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
        Ok(CreateOut { entry: state.tree.entry(nodeid)?, open: state.open(nodeid, false, arg.flags.get())? })
    }
}

impl Serve<Fallocate> for MemFs {
    fn serve(&self, call: Call<'_, Fallocate>) -> Result<(), Errno> {
        let arg = &call.arg;
        let state = &mut *self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.to_write()?;
        state.tree.fallocate(nodeid, arg.offset.get(), arg.length.get(), arg.mode.get())
    }
}

impl Serve<Lseek> for MemFs {
    fn serve(&self, call: Call<'_, Lseek>) -> Result<LseekOut, Errno> {
        let arg = &call.arg;
        let state = &mut *self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        let offset = state.tree.lseek(nodeid, arg.offset.get(), arg.whence.get())?;
        Ok(LseekOut { offset: offset.into() })
    }
}

impl Serve<CopyFileRange> for MemFs {
    fn serve(&self, call: Call<'_, CopyFileRange>) -> Result<WriteOut, Errno> {
        Ok(WriteOut::new(self.copy(&call.arg.within_32_bits())? as u32))
    }
}

impl Serve<CopyFileRange64> for MemFs {
    fn serve(&self, call: Call<'_, CopyFileRange64>) -> Result<CopyFileRangeOut, Errno> {
        Ok(CopyFileRangeOut { bytes_copied: self.copy(&call.arg)?.into() })
    }
}

impl MemFs {
    fn copy(&self, arg: &CopyFileRangeIn) -> Result<u64, Errno> {
        let state = &mut *self.lock();
        let from = state.handles.get(arg.fh_in.get(), false)?.to_read()?;
        let to = state.handles.get(arg.fh_out.get(), false)?.to_write()?;
        state.tree.copy((from, arg.off_in.get()), (to, arg.off_out.get()), arg.len.get())
    }
}

impl Serve<Syncfs> for MemFs {
    fn serve(&self, _: Call<'_, Syncfs>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Serve<Tmpfile> for MemFs {
    fn serve(&self, call: Call<'_, Tmpfile>) -> Result<CreateOut, Errno> {
        let (ctx, parent, arg) = (&call.ctx, call.nodeid, &call.arg);
        let state = &mut *self.lock();
        state.tree.directory(parent.0)?;
        state.handles.check_room()?;
        let mode = libc::S_IFREG | arg.mode.get() & PERMISSIONS;
        let nodeid = state.tree.add(mode, (ctx.uid, ctx.gid), Content::File(Vec::new()))?;
        state.tree.inode_mut(nodeid)?.is_nameless = arg.flags.get() as i32 & libc::O_EXCL == 0;
        Ok(CreateOut { entry: state.tree.entry(nodeid)?, open: state.open(nodeid, false, arg.flags.get())? })
    }
}
