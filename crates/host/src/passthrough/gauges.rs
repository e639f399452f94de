//! The file system's gauges, for metrics.

use transom_metrics::{Gauges, GroupGauges, WindowGauges};

use super::Passthrough;
use crate::{locks::Locks, replay::Replays};

/// Maximum number of the window's files listed by name.
const FILES_MAX: usize = 8;

impl Passthrough {
    /// Returns what is currently held. The gauges of queues and pool, which only the transport knows, are zero.
    pub fn gauges(&self) -> Gauges {
        let (inodes, descriptors) = (self.inodes.capacity(), self.handles.descriptors());
        let lock_owners = self.locks.as_ref().map_or(0, Locks::descriptors);
        Gauges {
            inodes: inodes.known() as u64,
            inodes_limit: inodes.limit() as u64,
            inodes_refused: inodes.refusals(),
            open_files: descriptors.open_files() as u64,
            descriptors: (descriptors.held() + lock_owners) as u64,
            descriptors_limit: descriptors.limit() as u64,
            lock_owners: lock_owners as u64,
            lock_waiters: self.locks.as_ref().map_or(0, Locks::waiting) as u64,
            window: self.dax.as_ref().map(|dax| {
                let files = dax.window.files().into_iter().take(FILES_MAX);
                WindowGauges {
                    usage: dax.window.usage(),
                    files: files.map(|usage| (usage.file.name().to_owned(), usage.ranges)).collect(),
                }
            }),
            quota: self.quota_gauges(),
            group: self.group.as_ref().map(|group| {
                let now = group.now();
                let host = group.host_stamps();
                GroupGauges {
                    members: group.members() as u64,
                    stamps: now.clock.get(),
                    epochs: now.epoch,
                    host_watched: group.reader().stamps_host_changes().into(),
                    host_changes: host.changes(),
                    host_changes_timed: host.timed(),
                    host_delay_ns: host.delay_ns(),
                }
            }),
            replays: self.replays.as_ref().map(Replays::gauges),
            ..Gauges::default()
        }
    }
}
