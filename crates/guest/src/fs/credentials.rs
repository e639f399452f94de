//! Who asks.

use alloc::vec::Vec;

/// An identity, as the files of the share name owners and groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User; 0 may do anything.
    pub uid: u32,
    /// Group, and that of new files.
    pub gid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Process, 0 where there are none.
    pub pid: u32,
    /// Permissions that new files do not get.
    pub umask: u32,
    /// The owner of locks that are a process's.
    pub lock_owner: u64,
}

impl Default for Credentials {
    /// Root, with the usual umask.
    fn default() -> Self {
        Self { uid: 0, gid: 0, groups: Vec::new(), pid: 0, umask: 0o022, lock_owner: 1 << 63 }
    }
}

impl Credentials {
    /// Whether `gid` is one of the groups.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
