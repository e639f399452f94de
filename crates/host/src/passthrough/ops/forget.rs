//! FORGET and BATCH_FORGET.

use transom_wire::NodeId;

use crate::passthrough::Passthrough;

impl Passthrough {
    pub(in crate::passthrough) fn do_forget(&self, nodeid: NodeId, nlookup: u64) {
        if self.inodes.forget(nodeid, nlookup)
            && let Some(locks) = &self.locks
        {
            locks.release_inode(nodeid);
        }
    }
}
