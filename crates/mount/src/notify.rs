//! Notifications to the kernel that something it has cached is no longer valid.
//!
//! virtio-fs on Linux has no such messages, and no daemon sends any here. A program that learns of a change in another
//! way, for example from a version table, tells the kernel through a [`Notifier`]. Source: linux/fs/fuse/dev.c,
//! `fuse_notify`; include/uapi/linux/fuse.h.

use std::{io, sync::Weak};

use rustix::io::Errno;
use transom_wire::{Name, header::OutHeader, ids::NodeId};
use zerocopy::{Immutable, IntoBytes, KnownLayout, little_endian::*};

use super::{fuse_device::FuseDevice, mount_state::MountState};

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;

/// `fuse_notify_inval_inode_out`.
#[derive(Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InvalInodeOut {
    ino: U64,
    off: I64,
    len: I64,
}
const _: () = assert!(size_of::<InvalInodeOut>() == 24);

impl InvalInodeOut {
    fn new(nodeid: NodeId, stale: Stale) -> Self {
        // A negative offset leaves the data alone.
        let (off, len) = match stale {
            Stale::Attributes => (-1, 0),
            Stale::Data(offset, len) => (offset.try_into().unwrap_or(i64::MAX), len.try_into().unwrap_or(0)),
        };
        Self { ino: nodeid.into(), off: off.into(), len: len.into() }
    }
}

/// `fuse_notify_inval_entry_out`. The name and a NUL follow.
#[derive(Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InvalEntryOut {
    parent: U64,
    namelen: U32,
    flags: U32,
}
const _: () = assert!(size_of::<InvalEntryOut>() == 16);

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

/// What of an inode is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Its attributes.
    Attributes,
    /// Its attributes, and the data at an offset with a length in bytes. A length of 0 means up to the end.
    Data(u64, u64),
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
        self.send(INVAL_INODE, InvalInodeOut::new(nodeid, stale).as_bytes())
    }

    /// Invalidates the entry `name` of the directory `parent` (FUSE_NOTIFY_INVAL_ENTRY).
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn entry(&self, parent: NodeId, name: Name<'_>) -> io::Result<()> {
        let namelen = name.as_bytes().len() as u32;
        let out = InvalEntryOut { parent: parent.into(), namelen: namelen.into(), flags: 0.into() };
        self.send(INVAL_ENTRY, &[out.as_bytes(), name.as_bytes(), b"\0"].concat())
    }

    fn send(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let device = self.state.upgrade().and_then(|state| state.fuse_device()).ok_or(io::ErrorKind::NotConnected)?;
        match notify(&device, code, body) {
            // The kernel has no such inode or name cached.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NODEV) => Err(io::ErrorKind::NotConnected.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Invalidates the attributes of `nodeid`.
///
/// Does not wait for pages to be written back, but waits while the kernel frees the inode. A worker may call this only
/// while something keeps the inode from being freed.
///
/// # Errors
/// ENOENT if the kernel does not have the inode, ENODEV once the mount is unmounted.
pub(super) fn expire_attributes(device: &FuseDevice, nodeid: NodeId) -> Result<(), Errno> {
    notify(device, INVAL_INODE, InvalInodeOut::new(nodeid, Stale::Attributes).as_bytes())
}

fn notify(device: &FuseDevice, code: i32, body: &[u8]) -> Result<(), Errno> {
    let len = (size_of::<OutHeader>() + body.len()) as u32;
    device.write(&OutHeader { len: len.into(), error: code.into(), unique: 0.into() }, body)
}
