//! FORGET and BATCH_FORGET.

use transom_wire::{
    NodeId,
    operation::{BatchForget, Forget},
};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Forget> for Passthrough {
    fn serve(&self, call: Call<'_, Forget>) -> Result<(), Errno> {
        self.forget(call.nodeid, call.arg.nlookup.get());
        Ok(())
    }
}

impl Serve<BatchForget> for Passthrough {
    fn serve(&self, call: Call<'_, BatchForget>) -> Result<(), Errno> {
        call.rest.iter().for_each(|one| self.forget(self.aliases.own(one.nodeid.into()), one.nlookup.get()));
        Ok(())
    }
}

impl Passthrough {
    /// Drops references. Ignores an inode that the guest does not know.
    pub(in crate::passthrough) fn forget(&self, nodeid: NodeId, nlookup: u64) {
        if self.inodes.forget(nodeid, nlookup) {
            self.aliases.remove(nodeid);
            self.note_quota_forgotten(nodeid);
            if let Some(locks) = &self.locks {
                locks.release_inode(nodeid);
            }
        }
    }
}
