//! The messages of [`notify`](super::notify), and how they are written to `/dev/fuse`.
//!
//! Source: linux/fs/fuse/dev.c, `fuse_notify`; include/uapi/linux/fuse.h.

use rustix::io::Errno;
use transom_wire::{Name, header::OutHeader, ids::NodeId};
use zerocopy::{Immutable, IntoBytes, KnownLayout, little_endian::*};

use super::fuse_device::FuseDevice;

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
/// FUSE_EXPIRE_ONLY.
const EXPIRE_ONLY: u32 = 1;

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

/// What of an inode is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Its attributes.
    Attributes,
    /// Its attributes, and the data at an offset with a length in bytes. A length of 0 means up to the end.
    Data(u64, u64),
}

/// Invalidates the attributes of `nodeid`.
///
/// Does not wait for pages to be written back, but waits while the kernel frees the inode. A worker may call this only
/// while something keeps the inode from being freed.
///
/// # Errors
/// ENOENT if the kernel does not have the inode, ENODEV once the mount is unmounted.
pub(super) fn expire_attributes(device: &FuseDevice, nodeid: NodeId) -> Result<(), Errno> {
    invalidate_inode(device, nodeid, Stale::Attributes)
}

/// Invalidates what `stale` says of the inode `nodeid`. Errors: as [`send`].
pub(super) fn invalidate_inode(device: &FuseDevice, nodeid: NodeId, stale: Stale) -> Result<(), Errno> {
    send(device, INVAL_INODE, InvalInodeOut::new(nodeid, stale).as_bytes())
}

/// Invalidates the entry `name` of the directory `parent`. Errors: as [`send`].
pub(super) fn invalidate_entry(device: &FuseDevice, parent: NodeId, name: Name<'_>) -> Result<(), Errno> {
    send_entry(device, parent, name.as_bytes(), 0)
}

/// Has the kernel look the entry `name` of the directory `parent` up again at its next use. Unlike
/// [`invalidate_entry`], this leaves the entry to those who use it. For kernels that offer HAS_EXPIRE_ONLY.
///
/// Waits while a request looks up, makes or removes a name in the directory. Errors: as [`send`].
pub(super) fn expire_entry(device: &FuseDevice, parent: NodeId, name: &[u8]) -> Result<(), Errno> {
    send_entry(device, parent, name, EXPIRE_ONLY)
}

fn send_entry(device: &FuseDevice, parent: NodeId, name: &[u8], flags: u32) -> Result<(), Errno> {
    let namelen = name.len() as u32;
    let out = InvalEntryOut { parent: parent.into(), namelen: namelen.into(), flags: flags.into() };
    send(device, INVAL_ENTRY, &[out.as_bytes(), name, b"\0"].concat())
}

/// Sends a notification. Errors: ENOENT if the kernel does not have the inode or name, ENODEV once the mount is
/// unmounted.
fn send(device: &FuseDevice, code: i32, body: &[u8]) -> Result<(), Errno> {
    let len = (size_of::<OutHeader>() + body.len()) as u32;
    device.write(&OutHeader { len: len.into(), error: code.into(), unique: 0.into() }, body)
}
