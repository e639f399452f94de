//! What a server tells the kernel of its own accord: that something it has cached is no longer so.
//!
//! virtio-fs has no such messages on Linux, and no daemon sends any here; who learns of a change in another way, such as
//! a version table, tells it through a [`Notifier`].
//! Source: linux/fs/fuse/dev.c, `fuse_notify`; include/uapi/linux/fuse.h.

use std::{io, sync::Weak};

use rustix::io::Errno;
use transom_wire::{Name, header::OutHeader, ids::NodeId};
use zerocopy::{Immutable, IntoBytes, KnownLayout, little_endian::*};

use super::{kernel::Kernel, served::Served};

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

/// `fuse_notify_inval_entry_out`; the name and a NUL follow.
#[derive(Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct InvalEntryOut {
    parent: U64,
    namelen: U32,
    flags: U32,
}
const _: () = assert!(size_of::<InvalEntryOut>() == 16);

/// Tells the kernel of a mount what it has to ask for again.
///
/// The calls may block for as long as the kernel writes the inode's dirty pages back, which takes answers of the daemon:
/// they are not for a thread that the daemon waits for. Where the kernel knows no such inode or name there is nothing to
/// do, and that is no error. After the mount's end they are ENOTCONN.
///
/// Where the mount may reconnect, the numbers of inodes are its own, and only the root's is known outside; between two daemons
/// the calls are ENOTCONN too, nothing is told, and they may be made again later.
#[derive(Clone)]
pub struct Notifier {
    served: Weak<Served>,
}

/// What of an inode is no longer so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// Its attributes.
    Attributes,
    /// Its attributes, and its data from the first offset on for so many bytes; 0 for all that follow.
    Data(u64, u64),
}

impl Notifier {
    pub(super) fn new(served: Weak<Served>) -> Self {
        Self { served }
    }

    /// FUSE_NOTIFY_INVAL_INODE.
    pub fn inode(&self, nodeid: NodeId, stale: Stale) -> io::Result<()> {
        self.send(INVAL_INODE, InvalInodeOut::new(nodeid, stale).as_bytes())
    }

    /// FUSE_NOTIFY_INVAL_ENTRY: `name` in the directory `parent` stands for something else now, or for nothing.
    pub fn entry(&self, parent: NodeId, name: Name<'_>) -> io::Result<()> {
        let namelen = name.as_bytes().len() as u32;
        let out = InvalEntryOut { parent: parent.into(), namelen: namelen.into(), flags: 0.into() };
        self.send(INVAL_ENTRY, &[out.as_bytes(), name.as_bytes(), b"\0"].concat())
    }

    fn send(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let kernel = self.served.upgrade().and_then(|served| served.kernel()).ok_or(io::ErrorKind::NotConnected)?;
        match notify(&kernel, code, body) {
            // Nothing is cached under that number or name.
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(Errno::NODEV) => Err(io::ErrorKind::NotConnected.into()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Has the kernel ask for the attributes of `nodeid` before it uses them again.
///
/// Does not wait for pages to be written back, but does for an inode that is being freed: for threads that the kernel may need for
/// that, somebody has to hold it.
pub(super) fn attributes_are_stale(kernel: &Kernel, nodeid: NodeId) -> Result<(), Errno> {
    notify(kernel, INVAL_INODE, InvalInodeOut::new(nodeid, Stale::Attributes).as_bytes())
}

fn notify(kernel: &Kernel, code: i32, body: &[u8]) -> Result<(), Errno> {
    let len = (size_of::<OutHeader>() + body.len()) as u32;
    kernel.write(&OutHeader { len: len.into(), error: code.into(), unique: 0.into() }, body)
}
