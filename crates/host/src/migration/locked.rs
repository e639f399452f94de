//! What goes along with POSIX locks to another host: how the locked files looked, and who waits.

/// A file on which locks are held. If it looks different once the destination has the locks, somebody else had them
/// meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockedFile {
    /// The guest's number of its inode.
    pub inode: u64,
    /// Its size.
    pub len_bytes: u64,
    /// When its data was changed: seconds, whose sign is kept, and nanoseconds.
    pub changed_at: (u64, u32),
}

/// A request that the source has taken off a ring and not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingRequest {
    /// The ring.
    pub queue: u16,
    /// The first descriptor of its chain.
    pub head: u16,
}
