//! FSYNC and FSYNCDIR.

use std::os::fd::AsFd;

use transom_wire::{
    Handle,
    ops::fsync::{FSYNC_FDATASYNC, FsyncIn},
};

use crate::{Errno, passthrough::Passthrough};

impl Passthrough {
    pub(in crate::passthrough) fn do_fsync(&self, arg: &FsyncIn) -> Result<(), Errno> {
        sync(&self.handles.file(Handle::from(arg.fh))?.fd, arg)
    }

    pub(in crate::passthrough) fn do_fsyncdir(&self, arg: &FsyncIn) -> Result<(), Errno> {
        sync(&*self.handles.directory(Handle::from(arg.fh))?, arg)
    }
}

fn sync(fd: impl AsFd, arg: &FsyncIn) -> Result<(), Errno> {
    if arg.fsync_flags.get() & FSYNC_FDATASYNC != 0 { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) }
}
