//! The inodes that are referenced, by nodeid.
//!
//! Sharded, each shard with its own lock. An inode that has lost its last reference may still be listed until its
//! `drop` removes it; a lookup that finds it creates a new one in its place, and each gives back the references that it
//! has counted.

use alloc::sync::{Arc, Weak};

use hashbrown::HashMap;
use transom_wire::{NodeId, attr::Attr, linux::S_IFMT};

use super::{Inode, Shared, judge::AskedAt};
use crate::{
    Errno, Platform,
    cache::{Validity, attributes::Attributes},
    sync::{Mutex, rank},
};

/// Number of locks: few threads contend for one, and an empty table stays small.
const SHARDS: usize = 16;

struct Shard<P: Platform> {
    inodes: HashMap<NodeId, Weak<Inode<P>>>,
    /// When this guest last changed an inode that was removed since. A reply to a request sent before that may predate
    /// the change, and the inode that recorded the change no longer exists.
    gone_changed_at: u64,
}

pub(super) struct Table<P: Platform>([Mutex<P, { rank::LEAF }, Shard<P>>; SHARDS]);

impl<P: Platform> Table<P> {
    pub(super) fn new() -> Self {
        Self(core::array::from_fn(|_| Mutex::new(Shard { inodes: HashMap::new(), gone_changed_at: 0 })))
    }

    /// Takes one reference that the server has counted. Returns the inode, with the attributes that came with it.
    ///
    /// Errors: EIO if the inode is known and had another type.
    pub(super) fn adopt(
        &self,
        shared: &Arc<Shared<P>>,
        nodeid: NodeId,
        attr: Attr,
        validity: Validity,
        asked_at: AskedAt,
    ) -> Result<Arc<Inode<P>>, Errno> {
        let mut shard = self.shard(nodeid).lock();
        let listed = shard.inodes.get(&nodeid).map(Weak::upgrade);
        if let Some(Some(inode)) = listed {
            drop(shard);
            inode.count_lookup();
            if inode.file_type() != attr.mode.get() & S_IFMT {
                return Err(Errno::IO);
            }
            inode.refresh(attr, validity, asked_at);
            return Ok(inode);
        }
        // The changes that an inode under removal knows of are not in the shard yet.
        let changed_at = if listed.is_some() { shared.asked_at().changes } else { shard.gone_changed_at };
        let mut attributes = Attributes::changed_before(changed_at);
        attributes.put(attr, validity, asked_at.changes);
        let (file_type, ranges) = (attr.mode.get() & S_IFMT, shared.ranges_of(&attr));
        let inode = Inode::new(Arc::clone(shared), nodeid, file_type, attributes, shared.slot_of(&attr), 1, ranges);
        shard.inodes.insert(nodeid, Arc::downgrade(&inode));
        Ok(inode)
    }

    /// Removes an inode that has lost its last reference.
    pub(super) fn remove(&self, inode: &Inode<P>) {
        let changed_at = inode.attributes.lock().changed_at();
        let mut shard = self.shard(inode.nodeid()).lock();
        shard.gone_changed_at = shard.gone_changed_at.max(changed_at);
        if shard.inodes.get(&inode.nodeid()).is_some_and(|listed| core::ptr::eq(listed.as_ptr(), inode)) {
            shard.inodes.remove(&inode.nodeid());
        }
    }

    fn shard(&self, nodeid: NodeId) -> &Mutex<P, { rank::LEAF }, Shard<P>> {
        &self.0[nodeid.0 as usize % SHARDS]
    }
}
