//! The files and directories that the kernel has open, and how a new daemon is asked to open them.
//!
//! The kernel's handles are this table's and are never given twice; a daemon's hold for one connection.

use std::collections::{HashMap, HashSet};

use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId,
    ops::lk::{FileLock, LK_FLOCK, LkIn},
};

use super::inodes::DaemonNode;

/// Of the flags of an open, what is done once and not again.
const ONCE: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY) as u32;

/// `l_type` of a lock that is given back.
const UNLOCK: u32 = libc::F_UNLCK as u32;

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

/// Whose lock it is, and of which kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    owner: u64,
    is_flock: bool,
}

#[derive(Debug)]
struct File {
    opened: Opened,
    /// Errors: why the present daemon does not have it.
    known: Result<Known, Errno>,
    /// Who may hold locks by way of it, which the daemon keeps. Each stands for a process that is there, or for the open file.
    holders: HashSet<Holder>,
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
        self.files.insert(handle, File { opened, known: Ok(known), holders: HashSet::new() });
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

    /// A lock was taken or given back, as `args` ask. What is given back in parts is held until all of it is.
    pub(super) fn locked(&mut self, args: &LkIn) {
        let Some(file) = self.files.get_mut(&Handle::from(args.fh)) else { return };
        let holder = Holder { owner: args.owner.get(), is_flock: args.lk_flags.get() & LK_FLOCK != 0 };
        if args.lk.type_.get() != UNLOCK {
            file.holders.insert(holder);
        } else if holder.is_flock || is_whole(&args.lk) {
            file.holders.remove(&holder);
        }
    }

    /// A descriptor was closed, and with it the owner's POSIX locks have ended.
    pub(super) fn flushed(&mut self, handle: Handle, owner: u64) {
        if let Some(file) = self.files.get_mut(&handle) {
            file.holders.remove(&Holder { owner, is_flock: false });
        }
    }

    /// The daemon is gone. What was locked fails with EIO from now on: others may have taken the lock.
    pub(super) fn disconnected(&mut self) {
        for file in self.files.values_mut() {
            let was_lost = file.known == Err(Errno::IO);
            file.known = Err(if !file.holders.is_empty() || was_lost { Errno::IO } else { Errno::STALE });
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

fn is_whole(lock: &FileLock) -> bool {
    lock.start.get() == 0 && lock.end.get() >= i64::MAX as u64
}
