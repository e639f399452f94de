//! The files and directories that the kernel has open, and how a new daemon is asked to open them.
//!
//! The kernel's handles are this table's and are never given twice; a daemon's hold for one connection.

use std::collections::HashMap;

use rustix::io::Errno;
use transom_wire::{Handle, NodeId};

use super::inodes::DaemonNode;

/// Of the flags of an open, what is done once and not again.
const ONCE: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY) as u32;

/// A daemon's number for an open file, in the present connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DaemonHandle(pub(super) u64);

/// By whom and how something was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) nodeid: NodeId,
    pub(super) flags: u32,
    pub(super) is_dir: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// An open file as the present daemon has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) handle: DaemonHandle,
    /// Its inode, which the kernel may have forgotten before it closes the file.
    pub(super) node: DaemonNode,
}

#[derive(Debug)]
struct File {
    opened: Opened,
    /// Errors: why the present daemon does not have it.
    known: Result<Known, Errno>,
    /// Somebody holds a lock by way of it, which the daemon keeps.
    has_locks: bool,
}

#[derive(Debug, Default)]
pub(super) struct Handles {
    files: HashMap<Handle, File>,
    last: u64,
}

impl Handles {
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// The daemon has opened something; gives the kernel's handle.
    pub(super) fn opened(&mut self, opened: Opened, known: Known) -> Handle {
        self.last += 1;
        let handle = Handle(self.last);
        let opened = Opened { flags: opened.flags & !ONCE, ..opened };
        self.files.insert(handle, File { opened, known: Ok(known), has_locks: false });
        handle
    }

    /// Errors: EBADF for a handle that is none, and why the present daemon does not have it.
    pub(super) fn known(&self, handle: Handle) -> Result<Known, Errno> {
        self.files.get(&handle).ok_or(Errno::BADF)?.known
    }

    /// The kernel has closed it.
    pub(super) fn released(&mut self, handle: Handle) -> Result<Known, Errno> {
        self.files.remove(&handle).ok_or(Errno::BADF)?.known
    }

    /// A lock was taken, or all were given back.
    pub(super) fn locked(&mut self, handle: Handle, is_locked: bool) {
        if let Some(file) = self.files.get_mut(&handle) {
            file.has_locks = is_locked;
        }
    }

    /// The daemon is gone. What was locked fails with EIO from now on: others may have taken the lock.
    pub(super) fn disconnected(&mut self) {
        for file in self.files.values_mut() {
            let was_lost = file.known == Err(Errno::IO);
            file.known = Err(if file.has_locks || was_lost { Errno::IO } else { Errno::STALE });
        }
    }

    /// What the new daemon is to open.
    pub(super) fn wanted(&self) -> Vec<(Handle, Opened)> {
        let is_wanted = |file: &File| file.known == Err(Errno::STALE);
        self.files.iter().filter(|(_, file)| is_wanted(file)).map(|(&handle, file)| (handle, file.opened)).collect()
    }

    /// The new daemon has opened it; tells whether the kernel still has it open.
    pub(super) fn reopened(&mut self, handle: Handle, known: Known) -> bool {
        self.files.get_mut(&handle).map(|file| file.known = Ok(known)).is_some()
    }

    /// Files that the present daemon does not have.
    pub(super) fn lost_count(&self) -> usize {
        self.files.values().filter(|file| file.known.is_err()).count()
    }
}
