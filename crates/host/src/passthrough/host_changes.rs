//! Changes that others make on the host, translated for the agent of a guest.
//!
//! Only names in directories that the guest knows are announced: nobody has cached, and nobody watches, what the guest
//! has never found. Of a rename between a directory that the guest knows and another, it sees a creation or a removal.

use rustix::fs::{AtFlags, FileType, StatxFlags};
use transom_wire::NodeId;

use super::Passthrough;
use crate::{
    replay::{Change, Kind},
    sysfd::RawFileHandle,
};

/// A directory by its file handle, and a name in it.
pub type HostName<'a> = (&'a RawFileHandle, &'a [u8]);

/// A change of the host by names.
#[derive(Debug, Clone, Copy)]
pub struct HostChange<'a> {
    /// What happened.
    pub kind: Kind,
    /// Whether it happened to a directory.
    pub is_directory: bool,
    /// The name; for a rename the old one.
    pub name: HostName<'a>,
    /// The new name of a rename.
    pub new_name: Option<HostName<'a>>,
}

impl Passthrough {
    /// Announces a change that somebody else made, if the guest may know the name.
    pub fn host_changed(&self, host: &HostChange<'_>) {
        let Some(replays) = &self.replays else { return };
        replays.count_change();
        if !replays.has_agent() {
            return;
        }
        let known = |name| self.known_name(name);
        let (old, new) = (known(host.name), host.new_name.and_then(known));
        let type_at = |name: (NodeId, &[u8])| self.host_type(name, host.is_directory);
        let of_name = |kind, name: (NodeId, &[u8])| Change::of_name(kind, type_at(name), name.0, name.1);
        let change = match (host.kind, old, new) {
            (Kind::Renamed | Kind::Exchanged, Some(old), Some(new)) => {
                Change::of_names(host.kind, type_at(new), old, new)
            }
            (Kind::Renamed | Kind::Exchanged, None, Some(new)) => of_name(Kind::Created, new),
            // What is there now may be another file than the one that is gone.
            (Kind::Renamed | Kind::Exchanged | Kind::Removed, Some(old), _) => {
                Change::of_name(Kind::Removed, known_type(host.is_directory), old.0, old.1)
            }
            (kind, Some(old), _) => of_name(kind, old),
            (_, None, _) => return,
        };
        let is_of_data = matches!(change.kind, Kind::Modified | Kind::Written | Kind::Closed);
        if !is_of_data || change.file_type == libc::DT_REG {
            replays.push(change);
        }
    }

    /// Announces that the attributes of a directory changed.
    pub fn host_changed_directory(&self, directory: &RawFileHandle) {
        let Some(replays) = &self.replays else { return };
        replays.count_change();
        if let Some(nodeid) = self.inodes.directory_by_handle(directory) {
            replays.push(Change::of_directory(nodeid));
        }
    }

    /// Returns the name by nodeid if the guest knows the directory and may know the name.
    fn known_name<'a>(&self, (directory, name): HostName<'a>) -> Option<(NodeId, &'a [u8])> {
        let nodeid = self.inodes.directory_by_handle(directory)?;
        let is_visible = self.hidden.is_none() || self.check_visible(&self.inodes.get(nodeid).ok()?, name).is_ok();
        is_visible.then_some((nodeid, name))
    }

    /// Returns the type of what the name is now, or a guess if it is gone.
    fn host_type(&self, (parent, name): (NodeId, &[u8]), is_directory: bool) -> u8 {
        let stat = self.inodes.get(parent).and_then(|dir| {
            rustix::fs::statx(&dir.fd, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE)
        });
        match stat.map(|stat| FileType::from_raw_mode(stat.stx_mode.into())) {
            Ok(file_type) if (file_type == FileType::Directory) == is_directory => {
                (file_type.as_raw_mode() >> 12) as u8
            }
            Ok(_) | Err(_) => known_type(is_directory),
        }
    }
}

fn known_type(is_directory: bool) -> u8 {
    if is_directory { libc::DT_DIR } else { libc::DT_REG }
}
