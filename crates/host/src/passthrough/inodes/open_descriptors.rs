//! The descriptors that inodes keep: how many stay open, and which are closed when there are too many.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    Fd, Inodes, lock,
    shard::{Class, Shard},
};
use crate::Errno;

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
            self.spare[Class::Other as usize].fetch_sub(unused.len(), Relaxed);
            unused.iter().for_each(|_| self.descriptors.remove());
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
            let Some(fd) = shard.evict(class) else { continue };
            drop(shard);
            drop(fd);
            self.spare[class as usize].fetch_sub(1, Relaxed);
            self.descriptors.remove();
            return true;
        }
        false
    }
}
