//! FORGET and BATCH_FORGET.

use transom_wire::{
    NodeId,
    operation::{BatchForget, Forget},
};

use crate::{
    Errno,
    journal::Record,
    passthrough::Passthrough,
    server::{Call, Context, Serve},
};

impl Serve<Forget> for Passthrough {
    fn serve(&self, call: Call<'_, Forget>) -> Result<(), Errno> {
        self.forget_for(&call.ctx, call.nodeid, call.arg.nlookup.get());
        Ok(())
    }
}

impl Serve<BatchForget> for Passthrough {
    fn serve(&self, call: Call<'_, BatchForget>) -> Result<(), Errno> {
        for one in call.rest {
            self.forget_for(&call.ctx, self.aliases.own(one.nodeid.into()), one.nlookup.get());
        }
        Ok(())
    }
}

impl Passthrough {
    /// Drops references that the guest has, as a request asks.
    fn forget_for(&self, ctx: &Context<'_>, nodeid: NodeId, nlookup: u64) {
        if let Some(journal) = &self.journal {
            let (unique, nodeid) = (ctx.unique.0, self.aliases.guests(nodeid).0);
            journal.append(&Record::Forget { unique, nodeid, count: nlookup });
        }
        self.forget(nodeid, nlookup);
    }

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
