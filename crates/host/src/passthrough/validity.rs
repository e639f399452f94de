//! How long the guest may use names and attributes before it asks again.
//!
//! The cache mode says it, unless an agent in the guest is told of each change and keeps up
//! ([`Replays::keeps_up`](crate::replay::Replays::keeps_up)): then it is longer, for files whose changes by others are
//! seen: by name, or by file handle if the name is one that the guest does not know. Where only directories are
//! observed that the guest knows, that excludes files with several names, and all if a directory is not observed.
//!
//! Attributes of set-id programs are the exception: [`attribute_validity`].

use std::{os::fd::AsFd, time::Duration};

use rustix::fs::{FileType, Mode, Statx, fstatfs};

use super::{CachePolicy, Config, Passthrough, inodes::file_type, set_id::without_set_id};
use crate::replay::Replays;

/// File systems that only this machine changes, by their magic numbers (linux/magic.h): ext2 to ext4, XFS, btrfs, F2FS,
/// tmpfs, overlayfs. On others, another machine may change files without an event here.
const LOCAL: [u32; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994, 0x794c_7630];

/// A longer validity, and for which files.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extended {
    duration: Duration,
    /// The device of the share's root: file systems mounted below are not observed.
    device: (u32, u32),
}

impl Extended {
    /// Returns the longer validity that `config` asks for, if the file system of `root` can have one.
    pub(super) fn new(config: &Config, root: impl AsFd, stat: &Statx) -> Option<Self> {
        let is_longer = config.events_validity > config.cache.validity();
        if !config.events || config.cache != CachePolicy::Auto || !is_longer {
            return None;
        }
        let magic = fstatfs(root).ok()?.f_type as u32;
        LOCAL.contains(&magic).then(|| Self { duration: config.events_validity, device: device(stat) })
    }

    /// Returns whether changes of the file by others are seen.
    fn applies_to(&self, stat: &Statx) -> bool {
        self.device == device(stat)
    }
}

impl Passthrough {
    /// Returns how long name and attributes of the file with `stat` stay valid.
    pub(super) fn validity(&self, stat: &Statx) -> Duration {
        match self.extended.filter(|extended| extended.applies_to(stat)) {
            Some(extended) if self.sees_changes_of(stat) => extended.duration,
            _ => self.config.cache.validity(),
        }
    }

    /// Returns whether the agent keeps up, and changes of the file under all its names are observed.
    fn sees_changes_of(&self, stat: &Statx) -> bool {
        let has_one_name = || file_type(stat) == FileType::Directory || stat.stx_nlink <= 1;
        self.replays.as_ref().is_some_and(Replays::keeps_up)
            && (!self.inodes.observes_directories() || has_one_name() && !self.inodes.misses_directories())
    }

    /// Returns the validity for a file that the guest may not have known when the host had made `seen` changes: what
    /// happened since may not have been announced.
    pub(super) fn validity_since(&self, seen: u64, stat: &Statx) -> Duration {
        if self.changes_seen() == seen { self.validity(stat) } else { self.config.cache.validity() }
    }

    /// Returns the number of changes by others that were seen so far.
    pub(super) fn changes_seen(&self) -> u64 {
        self.replays.as_ref().map_or(0, |replays| replays.changes_seen())
    }
}

/// Returns how long attributes of the file with `stat` stay valid if others stay so for `validity`: those of a program
/// that runs with the rights of its owner or group expire at once.
///
/// execve(2) takes the set-id bits from the mode that the guest's kernel got last. A write clears them on the host, and
/// the kernel does not notice: it keeps the old mode after a write that bypasses its cache, and with
/// HANDLE_KILLPRIV_V2. So an ordinary user of the guest who may write such a program could replace its content and run
/// it with the rights of others. If its attributes have expired, the kernel requests them before it executes the
/// program. `security.capability` needs none of this, since the kernel does not cache it.
///
/// Source: fs/fuse/file.c, `fuse_write_update_attr`; fs/fuse/dir.c, `fuse_permission` and `fuse_setattr`; fs/exec.c,
/// `bprm_fill_uid`.
pub(super) fn attribute_validity(stat: &Statx, validity: Duration) -> Duration {
    let mode = Mode::from_raw_mode(stat.stx_mode.into());
    let gives_rights = file_type(stat) == FileType::RegularFile && without_set_id(mode) != mode;
    if gives_rights { Duration::ZERO } else { validity }
}

fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}
