//! Notifications to the kernel that something it has cached is no longer valid.
//!
//! virtio-fs on Linux has no such messages, and no daemon sends any here. A program that learns of a change in another
//! way, for example from a version table, tells the kernel through a [`Notifier`].

use std::{io, sync::Weak};

use rustix::io::Errno;
use transom_wire::{Name, ids::NodeId};

use super::{
    fuse_device::FuseDevice,
    mount_state::MountState,
    notification::{Stale, invalidate_entry, invalidate_inode},
};

/// Invalidates what the kernel of a mount has cached.
///
/// The calls may block while the kernel writes dirty pages of the inode back, which needs replies of the daemon: they
/// must not be made by a thread that the daemon waits for. An inode or name that the kernel does not have cached is not
/// an error.
///
/// With [`Options::reconnect`](super::Options::reconnect) the mount has its own numbers of inodes, of which only the
/// root's is known outside.
#[derive(Clone)]
pub struct Notifier {
    state: Weak<MountState>,
}

impl Notifier {
    pub(super) fn new(state: Weak<MountState>) -> Self {
        Self { state }
    }

    /// Invalidates attributes or data of an inode (FUSE_NOTIFY_INVAL_INODE).
    ///
    /// # Errors
    /// ENOTCONN after the end of the mount, and between two daemons: the call may then be repeated later.
    pub fn inode(&self, nodeid: NodeId, stale: Stale) -> io::Result<()> {
        self.send(|device| invalidate_inode(device, nodeid, stale))
    }

    /// Invalidates the entry `name` of the directory `parent` (FUSE_NOTIFY_INVAL_ENTRY).
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn entry(&self, parent: NodeId, name: Name<'_>) -> io::Result<()> {
        self.send(|device| invalidate_entry(device, parent, name))
    }

    fn send(&self, send: impl FnOnce(&FuseDevice) -> Result<(), Errno>) -> io::Result<()> {
        let device = self.state.upgrade().and_then(|state| state.fuse_device()).ok_or(io::ErrorKind::NotConnected)?;
        match send(&device) {
            // The kernel has no such inode or name cached.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NODEV) => Err(io::ErrorKind::NotConnected.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}
