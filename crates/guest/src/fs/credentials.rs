//! The identity of a caller.

use alloc::vec::Vec;

/// An identity, by the user and group ids of the share's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User id; 0 may do anything.
    pub uid: u32,
    /// Group id, also for new files.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
    /// Process id, 0 if there are no processes.
    pub pid: u32,
    /// Permission bits that are cleared in the mode of new files.
    pub umask: u32,
    /// The owner of the process's locks.
    pub lock_owner: u64,
}

impl Default for Credentials {
    /// Root, with the usual umask.
    fn default() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), pid: 0, umask: 0o022, lock_owner: 1 << 63 }
    }
}

impl Credentials {
    /// Returns whether `gid` is one of the groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
