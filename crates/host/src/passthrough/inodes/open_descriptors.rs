//! The descriptors that inodes keep: how many stay open, and which are closed when there are too many.

use std::sync::atomic::Ordering::Relaxed;

use transom_wire::NodeId;

use super::{
    Fd, Inodes,
    identity::Hold,
    lock,
    shard::{Class, Evicted, Shard},
};
use crate::{Errno, sysfd::FileHandle};

/// The errors of an inode that has no handle, now and later.
const NO_HANDLE: Errno = Errno::OPNOTSUPP;
const TOO_LONG: Errno = Errno::OVERFLOW;

impl Inodes {
    /// Runs `open`, which opens a descriptor. If the process or the host has run out of descriptors, closes some and
    /// runs it once more.
    pub(in crate::passthrough) fn with_room<T>(&self, mut open: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
        match open() {
            Err(Errno::MFILE | Errno::NFILE) => {
                let spare: usize = self.spare.iter().map(|count| count.load(Relaxed)).sum();
                tracing::debug!(spare, "out of descriptors; closing a quarter of those that can be reopened");
                for _ in 0..spare.div_ceil(4) {
                    let _ = self.close_one(Class::Other) || self.close_one(Class::Directory);
                }
                open()
            }
            outcome => outcome,
        }
    }

    /// Closes descriptors until the limits are met. Call it after opening another one.
    pub(in crate::passthrough) fn balance(&self) {
        loop {
            let [directories, others] = [0, 1].map(|at| self.spare[at].load(Relaxed));
            let class = if others > self.spare_max[1] {
                Class::Other
            } else if directories > self.spare_max[0] {
                Class::Directory
            } else if !self.descriptors.is_over() {
                return;
            } else if others == 0 || directories > self.descriptors.limit() / 2 {
                Class::Directory
            } else {
                Class::Other
            };
            if !self.close_one(class) {
                return;
            }
        }
    }

    /// Closes the descriptors of files that were not used since the last call and can be reopened by handle: a file
    /// that the host deletes keeps its blocks while a descriptor is open.
    pub(in crate::passthrough) fn close_unused(&self) {
        if !self.filesystems.opens_handles(self.root.fs) {
            return;
        }
        for shard in &self.shards {
            let unused = lock(shard).take_unused(Class::Other);
            for evicted in unused {
                self.close(Class::Other, evicted);
            }
        }
    }

    /// Closes every descriptor that can be reopened.
    #[cfg(test)]
    pub(in crate::passthrough) fn close_all(&self) {
        while self.close_one(Class::Other) || self.close_one(Class::Directory) {}
    }

    /// Returns the number of descriptors kept for inodes.
    #[cfg(test)]
    pub(in crate::passthrough) fn kept_count(&self) -> usize {
        let spare: usize = self.spare.iter().map(|count| count.load(Relaxed)).sum();
        spare + self.pinned_count() + usize::from(self.holds_handles())
    }

    /// Returns the number of descriptors that may not be closed.
    #[cfg(test)]
    pub(in crate::passthrough) fn pinned_count(&self) -> usize {
        self.descriptors.pinned()
    }

    /// Returns the number of counted descriptors, including open files.
    #[cfg(test)]
    pub(in crate::passthrough) fn held_count(&self) -> usize {
        self.descriptors.held()
    }

    /// Returns whether inodes on the root's file system are kept by handle.
    #[cfg(test)]
    pub(in crate::passthrough) fn holds_handles(&self) -> bool {
        self.filesystems.opens_handles(self.root.fs)
    }

    /// Keeps a descriptor that may be closed later.
    pub(super) fn keep_spare(&self, shard: &mut Shard, key: u64, spare: Option<Fd>) {
        if let Some(fd) = spare
            && shard.keep(key, &fd, false).is_ok()
        {
            self.count_spare(shard, key);
        }
    }

    pub(super) fn count_spare(&self, shard: &Shard, key: u64) {
        if let Some(entry) = shard.entries.get(key) {
            self.descriptors.add();
            self.spare[entry.class() as usize].fetch_add(1, Relaxed);
        }
    }

    /// Closes one descriptor that can be reopened; returns whether it found one.
    pub(super) fn close_one(&self, class: Class) -> bool {
        let first = self.next_victim.fetch_add(1, Relaxed);
        for at in 0..self.shards.len() {
            let mut shard = lock(&self.shards[(first + at) % self.shards.len()]);
            let Some(evicted) = shard.evict(class) else { continue };
            drop(shard);
            if self.close(class, evicted) {
                return true;
            }
        }
        false
    }

    /// Closes a descriptor that was chosen; returns whether it did. Blocks on the host's file system.
    fn close(&self, class: Class, evicted: Evicted) -> bool {
        let fd = match evicted {
            Evicted::Closed(fd) => Some(fd),
            Evicted::Needed(key, fd) => {
                if class == Class::Other {
                    self.removals.note(false);
                }
                let handle = self.handle_of(NodeId(key), &fd);
                self.close_needed(class, key, &fd, handle)
            }
        };
        if fd.is_some() {
            self.spare[class as usize].fetch_sub(1, Relaxed);
            self.descriptors.remove();
        }
        fd.is_some()
    }

    /// Removes a descriptor that was all that led to its inode, whose handle was taken or not. Returns the descriptor
    /// unless it stays.
    fn close_needed(&self, class: Class, key: u64, fd: &Fd, handle: Result<FileHandle, Errno>) -> Option<Fd> {
        match handle {
            Ok(handle) => self.shard(NodeId(key)).close_with_handle(key, fd, handle),
            Err(NO_HANDLE | TOO_LONG) => {
                self.keep_without_handle(class, key);
                None
            }
            // The host may be short of memory. It can still be closed when the clock comes by again.
            Err(_) => None,
        }
    }

    /// As closing it does if its handle cannot be taken because of `error`.
    #[cfg(test)]
    pub(in crate::passthrough) fn close_without_handle(&self, nodeid: NodeId, error: Errno) {
        let (class, fd) = {
            let shard = self.shard(nodeid);
            let entry = shard.entries.get(nodeid.0).unwrap();
            (entry.class(), entry.fd.clone().unwrap())
        };
        assert!(self.close_needed(class, nodeid.0, &fd, Err(error)).is_none());
    }

    /// Takes the handle of an inode that only `fd` led to so far, and keeps it. Blocks on the host's file system.
    pub(super) fn take_handle(&self, nodeid: NodeId, fd: &Fd) -> Option<FileHandle> {
        let handle = self.handle_of(nodeid, fd).ok()?;
        self.shard(nodeid).set_handle(nodeid.0, fd, handle.clone());
        Some(handle)
    }

    /// Errors: ESTALE if the guest has forgotten the inode; those of [`FileHandle::of`].
    fn handle_of(&self, nodeid: NodeId, fd: &Fd) -> Result<FileHandle, Errno> {
        let fs = self.shard(nodeid).entries.get(nodeid.0).ok_or(Errno::STALE)?.identity.fs;
        let handle = FileHandle::of(&**fd, self.filesystems.mount(fs));
        if matches!(handle, Err(NO_HANDLE | TOO_LONG)) {
            // Others of this mount may have none either: find out at once.
            self.filesystems.take_handles_at_once(fs);
        }
        handle
    }

    /// Pins an inode that has no handle, although others of its mount have one.
    fn keep_without_handle(&self, class: Class, key: u64) {
        let mut shard = self.shard(NodeId(key));
        let is_closable = shard.entries.get(key).is_some_and(|entry| {
            // Another thread may have taken its handle meanwhile.
            matches!(entry.hold, Hold::Descriptor) && entry.fd.is_some() && !entry.is_pinned
        });
        if is_closable && self.descriptors.try_pin() {
            self.spare[class as usize].fetch_sub(1, Relaxed);
            shard.pin(key);
        }
    }
}
