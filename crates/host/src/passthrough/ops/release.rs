//! RELEASE and RELEASEDIR.

use transom_wire::{
    Handle, NodeId,
    ids::LockOwner,
    ops::release::{RELEASE_FLUSH, ReleaseIn},
};

use crate::passthrough::Passthrough;

impl Passthrough {
    /// A flock goes with the open file by itself.
    pub(in crate::passthrough) fn do_release(&self, nodeid: NodeId, arg: &ReleaseIn) {
        if let Some(locks) = &self.locks
            && arg.release_flags.get() & RELEASE_FLUSH != 0
        {
            locks.release_owner(nodeid, LockOwner(arg.lock_owner));
        }
        self.handles.remove(Handle::from(arg.fh));
    }
}
