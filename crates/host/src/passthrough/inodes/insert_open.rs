//! Inserts inodes that are kept by their descriptor only: see [`Hold::Descriptor`].

use std::sync::Mutex;

use rustix::fs::FileType;
use transom_wire::NodeId;

use super::{
    InodeFd, Inodes,
    identity::{Hold, Identity},
    lock,
    shard::{Entry, Shard},
};
use crate::Errno;

/// What became of an inode that was to be inserted with its descriptor only.
pub(super) enum Inserted<'a> {
    /// It has this nodeid.
    As(NodeId),
    /// Nothing: its handle is needed.
    No(InodeFd<'a>),
}

impl Inodes {
    /// Inserts an entry for an inode of which nothing is known, with one lookup and the descriptor that leads to it.
    pub(super) fn insert_open<'a>(
        &self,
        shard: &Mutex<Shard>,
        identity: Identity,
        (name, file_type): (&[u8], FileType),
        inode_fd: InodeFd<'a>,
    ) -> Result<Inserted<'a>, Errno> {
        let fd = match inode_fd {
            InodeFd::Owned(fd) if !name.is_empty() && !self.by_handle.is_used() => fd,
            inode_fd => return Ok(Inserted::No(inode_fd)),
        };
        if !self.filesystems.keep_without_handle(identity.fs, &self.descriptors) {
            return Ok(Inserted::No(InodeFd::Owned(fd)));
        }
        let mut shard = lock(shard);
        // Whether it is the same inode, the handle says.
        if shard.find_any(&identity).is_some() {
            drop(shard);
            self.filesystems.remove_inode(identity.fs, &self.descriptors);
            return Ok(Inserted::No(InodeFd::Owned(fd)));
        }
        let inserted = self.insert(&mut shard, Entry::new(identity, file_type, Hold::Descriptor));
        let key = match inserted {
            Ok(key) => key,
            Err((errno, _)) => {
                drop(shard);
                self.filesystems.remove_inode(identity.fs, &self.descriptors);
                return Err(errno);
            }
        };
        let fd = self.open_clock.path_fd(fd);
        self.keep_spare(&mut shard, key, Some(fd));
        drop(shard);
        self.balance();
        Ok(Inserted::As(NodeId(key)))
    }
}
