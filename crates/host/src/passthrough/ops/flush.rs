//! FLUSH.

use rustix::io::fcntl_dupfd_cloexec;
use transom_wire::{Handle, NodeId, ids::LockOwner, ops::flush::FlushIn};

use crate::{
    Errno,
    passthrough::{Passthrough, close::close},
};

impl Passthrough {
    /// Closes a descriptor of the file as the guest did: file systems that write late tell their errors then.
    pub(in crate::passthrough) fn do_flush(&self, nodeid: NodeId, arg: &FlushIn) -> Result<(), Errno> {
        if let Some(locks) = &self.locks {
            locks.release_owner(nodeid, LockOwner(arg.lock_owner));
        }
        let file = self.handles.file(Handle::from(arg.fh))?;
        let copy = self.inodes.with_room(|| fcntl_dupfd_cloexec(&file.fd, 0))?;
        close(copy)
    }
}
