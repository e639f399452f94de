//! The directories in which changes are replayed, opened by handle and kept open.
//!
//! To open one by handle makes the kernel forget at once that its name is valid. If then nothing refers to the
//! directory, its name is dropped, and it cannot be opened by handle again until a program finds it by its path.

use std::{collections::HashMap, io, os::fd::OwnedFd, rc::Rc};

use rustix::fs::{AtFlags, StatxFlags, statx};
use transom_wire::NodeId;

use crate::sys;

/// Number of directories that are kept open, less than the usual limit on descriptors (1024).
const OPEN_MAX: usize = 512;

/// Open directories by nodeid.
pub(crate) struct Directories {
    root: OwnedFd,
    open: HashMap<NodeId, Rc<OwnedFd>>,
}

impl Directories {
    /// Begins without any; `root` is the share's root.
    pub(crate) fn new(root: OwnedFd) -> Self {
        Self { root, open: HashMap::new() }
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// Returns an `O_PATH` descriptor of a directory. Errors: ESTALE if the kernel does not know it.
    pub(crate) fn get(&mut self, nodeid: NodeId) -> io::Result<Rc<OwnedFd>> {
        if let Some(open) = self.open.get(&nodeid) {
            return Ok(Rc::clone(open));
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let opened = Rc::new(sys::open_node(&self.root, nodeid, flags)?);
        if self.open.len() == OPEN_MAX {
            let first = self.open.keys().next().copied();
            first.and_then(|first| self.open.remove(&first));
        }
        self.open.insert(nodeid, Rc::clone(&opened));
        Ok(opened)
    }

    /// Closes a directory that is about to be removed: the event on it would wait for that.
    pub(crate) fn close(&mut self, directory: &OwnedFd) {
        let Some(ino) = ino(directory) else { return };
        self.open.retain(|_, open| self::ino(open) != Some(ino));
    }

    /// Closes all.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }
}

/// Returns the inode number, which the kernel knows without a request.
fn ino(directory: &OwnedFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(directory, "", flags, StatxFlags::INO).ok().map(|stat| stat.stx_ino)
}
