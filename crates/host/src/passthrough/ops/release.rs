//! RELEASE and RELEASEDIR.

use transom_wire::{
    Handle, NodeId,
    ids::LockOwner,
    ops::release::{RELEASE_FLUSH, ReleaseIn},
};

use crate::passthrough::Passthrough;

impl Passthrough {
    /// A flock goes with the open file by itself; POSIX locks that were taken through it are given back.
    pub(in crate::passthrough) fn do_release(&self, nodeid: NodeId, arg: &ReleaseIn) {
        if let Some(locks) = &self.locks {
            if arg.release_flags.get() & RELEASE_FLUSH != 0 {
                locks.release_owner(nodeid, LockOwner(arg.lock_owner));
            }
            let file = self.handles.file(Handle::from(arg.fh));
            let owners = file.map_or_else(|_| Vec::new(), |file| file.take_lock_owners());
            owners.into_iter().for_each(|owner| locks.release_owner(nodeid, owner));
        }
        self.handles.remove(Handle::from(arg.fh));
    }
}
