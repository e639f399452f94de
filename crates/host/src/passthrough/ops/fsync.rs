//! FSYNC and FSYNCDIR.

use std::os::fd::AsFd;

use transom_wire::{
    Handle,
    ops::fsync::{FSYNC_FDATASYNC, FsyncIn},
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Context, Patience},
};

impl Passthrough {
    /// Errors: EAGAIN under `Try` where there may be a disk to wait for.
    pub(in crate::passthrough) fn do_fsync(&self, ctx: &Context<'_>, arg: &FsyncIn) -> Result<(), Errno> {
        let file = self.handles.file(Handle::from(arg.fh))?;
        if ctx.patience == Patience::Try && !file.is_in_memory() {
            return Err(Errno::AGAIN);
        }
        sync(&file.fd, arg)
    }

    pub(in crate::passthrough) fn do_fsyncdir(&self, arg: &FsyncIn) -> Result<(), Errno> {
        sync(&*self.handles.directory(Handle::from(arg.fh))?, arg)
    }
}

fn sync(fd: impl AsFd, arg: &FsyncIn) -> Result<(), Errno> {
    if arg.fsync_flags.get() & FSYNC_FDATASYNC != 0 { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
}
