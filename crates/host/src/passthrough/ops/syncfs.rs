//! SYNCFS.

use rustix::fs::OFlags;
use transom_wire::operation::Syncfs;

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Syncfs> for Passthrough {
    /// Syncs the host's file system that holds the inode. The guest sends one request for each of its file systems,
    /// and has one for each of the host's if submounts are announced.
    fn serve(&self, call: Call<'_, Syncfs>) -> Result<(), Errno> {
        rustix::fs::syncfs(self.inodes.open(call.nodeid, OFlags::RDONLY | OFlags::NONBLOCK)?)
    }
}
