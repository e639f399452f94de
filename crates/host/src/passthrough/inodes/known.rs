//! Recognises known inodes by the attributes of a name, so that a LOOKUP of one opens nothing.
//!
//! An inode number may be reused between `statx` and the search for it. Two things prove that the inode of the name is
//! the known one: its descriptor was open before `statx` and still is, or the name has the known inode's handle
//! afterwards. Whether the attempt pays is predicted: it saves an `openat2` and a `close` if the inode is known, and
//! costs a `statx` if it is not.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use rustix::fs::Statx;
use transom_wire::NodeId;

use super::{
    Fd, FsId, Inode, Inodes,
    identity::{Hold, Identity},
    lock,
    path_fd::OpenMoment,
    shard::Shard,
};
use crate::sysfd::{FileHandle, stat};

/// Predicts by the last outcomes what the next one is: whether the guest knows the inode that it looks up, and whether
/// it removes the file that it creates.
#[derive(Debug)]
pub(super) struct Forecast(AtomicU8);

impl Forecast {
    const MAX: u8 = 8;
    /// More than one known name after unknown ones: a new directory is a known name for each of its new entries.
    const ENOUGH: u8 = 2;

    /// Creates a forecast of what has not happened yet.
    pub(super) fn of_unlikely() -> Self {
        Self(AtomicU8::new(0))
    }

    pub(super) fn is_likely(&self) -> bool {
        self.0.load(Relaxed) >= Self::ENOUGH
    }

    /// Takes note of an outcome. Threads may overwrite each other's: it is a guess.
    pub(super) fn note(&self, happened: bool) {
        let before = self.0.load(Relaxed);
        let after = if happened { Self::MAX.min(before + 1) } else { before.saturating_sub(1) };
        // At either end, threads only read it.
        if after != before {
            self.0.store(after, Relaxed);
        }
    }
}

impl Default for Forecast {
    fn default() -> Self {
        Self(AtomicU8::new(Self::MAX / 2))
    }
}

/// A known inode that a name was found to have. One lookup of it was counted.
#[derive(Debug)]
pub(in crate::passthrough) struct KnownInode {
    pub(in crate::passthrough) nodeid: NodeId,
    pub(in crate::passthrough) fs: FsId,
    /// Its descriptor, if it is kept.
    pub(in crate::passthrough) fd: Option<Fd>,
}

impl Inodes {
    /// Returns the moment to pass to [`Inodes::count_known`], or `None` if the guest probably does not know the inode
    /// of the next name.
    pub(in crate::passthrough) fn expect_known(&self) -> Option<OpenMoment> {
        self.forecast.is_likely().then(|| self.open_clock.now())
    }

    /// Takes note of a name without an inode, which is found without opening anything too.
    pub(in crate::passthrough) fn note_absent(&self) {
        self.forecast.note(true);
    }

    /// Counts a lookup of the inode that `name` in `dir`, whose nodeid is `parent`, has according to `stat`, which was
    /// obtained after `before`. Returns `None` if the inode is not known for certain.
    ///
    /// `name` is neither `.` nor `..`. May look the name up once more, which blocks on the host's file system.
    pub(in crate::passthrough) fn count_known(
        &self,
        parent: NodeId,
        dir: &Inode,
        name: &[u8],
        stat: &Statx,
        before: OpenMoment,
    ) -> Option<KnownInode> {
        let fs = self.filesystems.find(stat)?;
        let identity = Identity::new(fs, stat);
        if identity == self.root_identity {
            return Some(KnownInode { nodeid: NodeId::ROOT, fs, fd: Some(self.root.fd.clone()) });
        }
        let shard = self.shard_of(&identity);
        let mut locked = lock(shard);
        let key = locked.find_any(&identity)?;
        let entry = locked.entries.get(key)?;
        let was_open = entry.fd.as_ref().is_some_and(|fd| fd.opened_at <= before);
        match &entry.hold {
            Hold::Path(path) if path.parent != parent || *path.name != *name => return None,
            _ if was_open => return count(&mut locked, key, fs),
            Hold::Path(_) | Hold::Descriptor => return None,
            Hold::Handle(_) => {}
        }
        drop(locked);
        let handle = FileHandle::of_name(&dir.fd, name, stat::mount_id(stat)?).ok()?;
        let mut locked = lock(shard);
        let key = locked.find_by_handle(&identity, &handle)?;
        count(&mut locked, key, fs)
    }
}

fn count(shard: &mut Shard, key: u64, fs: FsId) -> Option<KnownInode> {
    shard.entries.get_mut(key)?.lookups += 1;
    Some(KnownInode { nodeid: NodeId(key), fs, fd: shard.kept(key) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forecast_follows_the_last_lookups() {
        let forecast = Forecast::default();
        assert!(forecast.is_likely());
        (0..Forecast::MAX / 2).for_each(|_| forecast.note(false));
        assert!(!forecast.is_likely());
        forecast.note(true);
        assert!(!forecast.is_likely(), "one known name among new ones");
        forecast.note(true);
        assert!(forecast.is_likely());
        (0..100).for_each(|_| forecast.note(true));
        (0..Forecast::MAX - Forecast::ENOUGH).for_each(|_| forecast.note(false));
        assert!(forecast.is_likely(), "a few new names change nothing");
    }
}
