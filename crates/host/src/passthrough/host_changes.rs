//! Changes that others make on the host, translated for the agent of a guest and for its notification queue.
//!
//! Names are announced in directories that the guest knows: nobody has cached, and nobody watches, names that the guest
//! has never found. Of a rename between a directory that the guest knows and another, it sees a creation or a removal.
//! A change of a file that the guest knows, under a name that it does not know, is announced by the file's nodeid: the
//! event had no name, because a descriptor was opened by handle, or the name is another link.

use rustix::fs::{AtFlags, FileType, StatxFlags, statx};
use transom_wire::NodeId;

use super::Passthrough;
use crate::{
    Errno,
    replay::{Change, Kind},
    sysfd::RawFileHandle,
};

/// A directory by its file handle, and a name in it.
pub type HostName<'a> = (&'a RawFileHandle, &'a [u8]);

/// A change of the host.
#[derive(Debug, Clone, Copy)]
pub struct HostChange<'a> {
    /// What happened.
    pub kind: Kind,
    /// Whether it happened to a directory.
    pub is_directory: bool,
    /// The name, if it is known; for a rename the old one.
    pub name: Option<HostName<'a>>,
    /// The new name of a rename.
    pub new_name: Option<HostName<'a>>,
    /// The file or directory, if it is known.
    pub object: Option<&'a RawFileHandle>,
}

impl Passthrough {
    /// Announces a change that somebody else made, if the guest may know the name or the file.
    pub fn host_changed(&self, host: &HostChange<'_>) {
        if let Some(replays) = &self.replays {
            replays.count_change();
        }
        let replays = self.replays.as_ref().filter(|replays| replays.has_agent());
        // Before the nodeids are found: they are of this session or an earlier one, of which nothing is kept.
        let notifications = self.config.notifications.as_ref().and_then(|all| Some((all, all.session()?)));
        if replays.is_none() && notifications.is_none() {
            return;
        }
        let change = self.change_of_name(host).or_else(|| self.change_of_object(host));
        let is_of_data = |change: &Change| matches!(change.kind, Kind::Modified | Kind::Written | Kind::Closed);
        let Some(change) = change.filter(|change| !is_of_data(change) || change.file_type == libc::DT_REG) else {
            return;
        };
        if let Some((notifications, session)) = notifications {
            notifications.push(session, change.clone());
        }
        if let Some(replays) = replays {
            replays.push(change);
        }
    }

    /// Announces that changes were lost: anything may have changed.
    pub fn host_changes_lost(&self) {
        if let Some(replays) = &self.replays {
            replays.overflow();
        }
        if let Some(notifications) = &self.config.notifications {
            notifications.lose();
        }
    }

    /// Announces that no more changes are seen.
    pub fn host_changes_end(&self) {
        if let Some(replays) = &self.replays {
            replays.end();
        }
        if let Some(notifications) = &self.config.notifications {
            notifications.end();
        }
    }

    /// Returns the change by name if the guest knows a directory of it and may know the name.
    fn change_of_name(&self, host: &HostChange<'_>) -> Option<Change> {
        let known = |name| self.known_name(name);
        let (old, new) = (host.name.and_then(known), host.new_name.and_then(known));
        let type_at = |name: (NodeId, &[u8])| self.host_type(name, host.is_directory);
        let of_name = |kind, name: (NodeId, &[u8])| Change::of_name(kind, type_at(name), name.0, name.1);
        let object = || Some(self.inodes.find_by_handle(host.object?)?.0);
        Some(match (host.kind, old, new) {
            (Kind::Renamed | Kind::Exchanged, Some(old), Some(new)) => {
                Change::of_names(host.kind, type_at(new), old, new)
            }
            (Kind::Renamed | Kind::Exchanged, None, Some(new)) => of_name(Kind::Created, new),
            // What is there now may be another file than the one that is gone.
            (Kind::Renamed | Kind::Exchanged, Some(old), _) => {
                Change::of_name(Kind::Removed, known_type(host.is_directory), old.0, old.1)
            }
            (Kind::Removed, Some(old), _) => {
                let change = Change::of_name(Kind::Removed, known_type(host.is_directory), old.0, old.1);
                change.of_object(object().filter(|&nodeid| !host.is_directory && self.has_name(nodeid)))
            }
            (Kind::Created, Some(old), _) => of_name(host.kind, old),
            (kind, Some(old), _) => of_name(kind, old).of_object(object()),
            (_, None, _) => return None,
        })
    }

    /// Returns the change of a file or directory that the guest knows, without a name.
    fn change_of_object(&self, host: &HostChange<'_>) -> Option<Change> {
        let (nodeid, file_type) = self.inodes.find_by_handle(host.object?)?;
        match host.kind {
            Kind::Attributes if host.is_directory => Some(Change::of_directory(nodeid)),
            // Most are of files that lose their last name, which is announced by name.
            Kind::Attributes if !self.has_name(nodeid) => None,
            // The system calls that add or remove another name raise it, and those raise events by name.
            Kind::Attributes => Some(Change::of_file(Kind::Stale, libc::DT_UNKNOWN, nodeid)),
            Kind::Modified | Kind::Written | Kind::Closed => {
                Some(Change::of_file(host.kind, d_type(file_type), nodeid))
            }
            Kind::Created | Kind::Removed | Kind::Renamed | Kind::Exchanged | Kind::Stale => None,
        }
    }

    fn has_name(&self, nodeid: NodeId) -> bool {
        let stat = self
            .inodes
            .get(nodeid)
            .and_then(|inode| statx(&inode.fd, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::NLINK));
        match stat {
            Ok(stat) => stat.stx_nlink > 0,
            // Out of descriptors, for example: to be told of a file without a name does no harm.
            Err(errno) => errno != Errno::STALE,
        }
    }

    /// Returns the name by nodeid if the guest knows the directory and may know the name.
    fn known_name<'a>(&self, (directory, name): HostName<'a>) -> Option<(NodeId, &'a [u8])> {
        let (nodeid, _) = self.inodes.find_by_handle(directory)?;
        if self.hidden.is_some() {
            let directory = self.inodes.get(nodeid).inspect_err(|&errno| {
                if errno != Errno::STALE {
                    // Nobody knows whether the guest may be told of this one.
                    self.host_changes_lost();
                }
            });
            self.check_visible(&directory.ok()?, name).ok()?;
        }
        Some((nodeid, name))
    }

    /// Returns the type of what the name is now, or a guess if it is gone.
    fn host_type(&self, (parent, name): (NodeId, &[u8]), is_directory: bool) -> u8 {
        let stat = self.inodes.get(parent).and_then(|dir| {
            statx(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        });
        match stat.map(|stat| FileType::from_raw_mode(stat.stx_mode.into())) {
            Ok(file_type) if (file_type == FileType::Directory) == is_directory => d_type(file_type),
            Ok(_) | Err(_) => known_type(is_directory),
        }
    }
}

fn known_type(is_directory: bool) -> u8 {
    if is_directory { libc::DT_DIR } else { libc::DT_REG }
}

fn d_type(file_type: FileType) -> u8 {
    (file_type.as_raw_mode() >> 12) as u8
}
