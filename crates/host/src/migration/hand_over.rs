//! What goes along with a state to another process of this host: open descriptors, which keep files without names and
//! locks.

use std::os::fd::AsFd;

/// A session for another process of this host.
pub struct HandOver {
    /// The state, as [`encode`](super::encode()) writes it.
    pub state: Vec<u8>,
    /// First those of [`State::carried`](super::State::carried), then those of [`State::locks`](super::State::locks).
    pub descriptors: Vec<Box<dyn AsFd + Send>>,
}

/// What a descriptor refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    /// The open file with this number.
    OpenFile(u64),
    /// The inode with this number, which has no name that is known.
    Inode(u64),
    /// The open directory with this number, which has no name that is known.
    OpenDirectory(u64),
}

/// An owner of POSIX locks on an inode. Its descriptor holds the locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// The inode.
    pub inode: u64,
    /// The owner, as the guest numbers it.
    pub owner: u64,
    /// The process that requested a lock last.
    pub pid: u32,
    /// Several processes have requested locks.
    pub has_several_pids: bool,
    /// It was granted a lock.
    pub has_locked: bool,
    /// The open files through which it has requested locks.
    pub files: Vec<u64>,
    /// What it has locked.
    pub ranges: Vec<LockedRange>,
}

/// A range of bytes that is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedRange {
    /// The first byte.
    pub start: u64,
    /// The last byte.
    pub end: u64,
    /// Whether it is an exclusive lock.
    pub is_exclusive: bool,
}
