//! [`Handles`]: the files and directories that the kernel has open, and how a new daemon is asked to open them.
//!
//! The kernel's handles are assigned here and never reused; a daemon's are valid for one connection.

use std::collections::{HashMap, HashSet};

use rustix::io::Errno;
use transom_wire::{
    Handle, NodeId,
    ops::lk::{FileLock, LK_FLOCK, LkIn},
};

use super::inodes::DaemonNode;

/// Flags of an open that must not take effect twice.
const ONCE: u32 = (libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY) as u32;

/// `l_type` of a request to unlock.
const UNLOCK: u32 = libc::F_UNLCK as u32;

/// A daemon's handle of an open file, in the current connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DaemonHandle(pub(super) u64);

/// How and by whom a file or directory was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) nodeid: NodeId,
    pub(super) flags: u32,
    pub(super) is_dir: bool,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// An open file as the current daemon knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenAtDaemon {
    pub(super) handle: DaemonHandle,
    /// Its inode. The kernel may forget it before it closes the file.
    pub(super) node: DaemonNode,
}

/// The owner of locks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Holder {
    owner: u64,
    is_flock: bool,
}

#[derive(Debug)]
struct File {
    opened: Opened,
    /// How the current daemon knows it, or the error for requests if it does not.
    known: Result<OpenAtDaemon, Errno>,
    /// Who may hold locks through it. Bounded: each is a running process, or the open file itself.
    holders: HashSet<Holder>,
}

/// All open files and directories, by the kernel's handle.
#[derive(Debug, Default)]
pub(super) struct Handles {
    files: HashMap<Handle, File>,
    last: u64,
}

impl Handles {
    /// Returns the number of open files and directories.
    pub(super) fn count(&self) -> usize {
        self.files.len()
    }

    /// Adds what the daemon has opened. Returns the handle for the kernel.
    pub(super) fn opened(&mut self, opened: Opened, known: OpenAtDaemon) -> Handle {
        self.last += 1;
        let handle = Handle(self.last);
        let opened = Opened { flags: opened.flags & !ONCE, ..opened };
        self.files.insert(handle, File { opened, known: Ok(known), holders: HashSet::new() });
        handle
    }

    /// Returns the open file as the current daemon knows it.
    ///
    /// # Errors
    /// EBADF for an unknown handle; ESTALE or EIO if the current daemon does not have the file open.
    pub(super) fn known(&self, handle: Handle) -> Result<OpenAtDaemon, Errno> {
        self.files.get(&handle).ok_or(Errno::BADF)?.known
    }

    /// Removes a file that the kernel has closed.
    ///
    /// # Errors
    /// As [`Self::known`].
    pub(super) fn released(&mut self, handle: Handle) -> Result<OpenAtDaemon, Errno> {
        self.files.remove(&handle).ok_or(Errno::BADF)?.known
    }

    /// Notes a lock or unlock. A lock that is released in parts counts as held until it is released as a whole.
    pub(super) fn locked(&mut self, args: &LkIn) {
        let Some(file) = self.files.get_mut(&Handle::from(args.fh)) else { return };
        let holder = Holder { owner: args.owner.get(), is_flock: args.lk_flags.get() & LK_FLOCK != 0 };
        if args.lk.type_.get() != UNLOCK {
            file.holders.insert(holder);
        } else if holder.is_flock || is_whole(&args.lk) {
            file.holders.remove(&holder);
        }
    }

    /// Notes that a descriptor was closed, which releases the owner's POSIX locks.
    pub(super) fn flushed(&mut self, handle: Handle, owner: u64) {
        if let Some(file) = self.files.get_mut(&handle) {
            file.holders.remove(&Holder { owner, is_flock: false });
        }
    }

    /// Notes that the daemon is gone. Files with locks fail with EIO from now on: others may have taken the lock.
    pub(super) fn disconnected(&mut self) {
        for file in self.files.values_mut() {
            let was_lost = file.known == Err(Errno::IO);
            file.known = Err(if !file.holders.is_empty() || was_lost { Errno::IO } else { Errno::STALE });
        }
    }

    /// Returns what the new daemon is to open.
    pub(super) fn wanted(&self) -> Vec<(Handle, Opened)> {
        let is_wanted = |file: &File| file.known == Err(Errno::STALE);
        self.files.iter().filter(|(_, file)| is_wanted(file)).map(|(&handle, file)| (handle, file.opened)).collect()
    }

    /// Notes that the new daemon has opened a file. Returns whether the kernel still has it open.
    pub(super) fn reopened(&mut self, handle: Handle, known: OpenAtDaemon) -> bool {
        self.files.get_mut(&handle).map(|file| file.known = Ok(known)).is_some()
    }

    /// Returns the number of files that the current daemon does not have open.
    pub(super) fn lost_count(&self) -> usize {
        self.files.values().filter(|file| file.known.is_err()).count()
    }
}

fn is_whole(lock: &FileLock) -> bool {
    lock.start.get() == 0 && lock.end.get() >= i64::MAX as u64
}
