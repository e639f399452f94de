//! FSYNC and FSYNCDIR.

use std::os::fd::AsFd;

use transom_wire::{
    Handle,
    operation::{Fsync, Fsyncdir},
    ops::fsync::{FSYNC_FDATASYNC, FsyncIn},
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{BlockingMode, Call, Serve},
};

impl Serve<Fsync> for Passthrough {
    /// # Errors
    ///
    /// EAGAIN under `MustNotBlock` if the call may have to wait for a disk.
    fn serve(&self, call: Call<'_, Fsync>) -> Result<(), Errno> {
        let file = self.handles.file(Handle::from(call.arg.fh))?;
        if call.ctx.blocking == BlockingMode::MustNotBlock && !file.is_in_memory() {
            return Err(Errno::AGAIN);
        }
        sync(&file.fd, &call.arg)
    }
}

impl Serve<Fsyncdir> for Passthrough {
    fn serve(&self, call: Call<'_, Fsyncdir>) -> Result<(), Errno> {
        sync(&*self.handles.directory(Handle::from(call.arg.fh))?, &call.arg)
    }
}

fn sync(fd: impl AsFd, arg: &FsyncIn) -> Result<(), Errno> {
    if arg.fsync_flags.get() & FSYNC_FDATASYNC != 0 { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
}
